//! One pool's dispatching: which endpoint a request goes to, and what is in flight where.
//!
//! [`PoolDispatch`] joins the counts of our own work, the endpoints' reports and the prefix index, and makes the pick and
//! its reservation one step: the next pick, a microsecond later, already sees it. That is what keeps a burst between two
//! reports from landing on one endpoint. The gateway holds one value per pool behind one short lock; simulations and
//! benchmarks run the very same value in virtual time.
//!
//! It refuses to know the time (`now` is an argument), to draw random numbers (`Request::tie` is one), to log, to count
//! metrics, and to give up work by a timer of its own: what was dispatched is in flight until its [`Permit`] comes back.

mod adapters;
mod decision;
mod ended;
mod endpoint_state;
mod evictable;
mod explain;
mod flights;
mod foresight;
mod fullness;
mod health;
mod horizon;
mod load_now;
mod pool_dispatch;
mod prefill_line;
mod prefill_speed;
mod request;
mod settings;
mod view;
mod waiting;
mod work;

pub use decision::{Basis, CANDIDATES_MAX, Considered, Decision, InFlight, PickReason, Readings, Seen};
pub use flights::{FlightId, Permit};
pub use flow_control::{Ask, Band, Fairness, Flow, Ordering, QueueFull, Ticket};
pub use health::{EjectedBy, Failure, Verdict};
pub use pool_dispatch::{Ejected, HealthChange, NoRetry, PoolDispatch};
pub use request::{Dispatched, Gone, Membership, Reconciled, Refusal, Request, Standing};
pub use scheduling::{BLOCK_TOKENS, IndexStats, Prediction, Rejected, Score, Scorer, Scores, Weights};
pub use settings::{Eviction, FlowControl, Full, HasPage, RANKED_MAX, Settings};
pub use view::{AdapterView, EndpointView, LatencyView, PoolView};
pub use waiting::{Admitted, Freed, More, Waiting};
