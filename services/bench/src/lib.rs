//! `igw-bench`: measures the gateway beside others, on one machine, in one run.
//!
//! A number of one program on one day says little. So every figure here comes from alternating passes over all
//! subjects, is a median with its spread, and is printed with the machine, its load, versions and seeds. Load generator
//! and static backend are small and live in this process: what costs CPU in the measured process is that process.
//!
//! Programs are measured as processes that are started; of the gateway's crates this one imports only pure ones, whose
//! own time is taken in process, and whose decisions `quality` judges on the virtual time of [`world`], where simulated
//! engines answer.

pub mod admission;
pub mod backend;
pub mod bodies;
pub mod certificate;
pub mod controller;
pub mod cost;
pub mod live;
pub mod load;
pub mod machine;
pub mod peers;
pub mod process;
pub mod quality;
pub mod real;
pub mod report;
pub mod statistics;
pub mod subject;
pub mod validate;
pub mod wire;
pub mod world;
