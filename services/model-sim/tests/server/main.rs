//! The simulated server over real sockets, as its clients meet it.

#[cfg(test)]
mod apis;
#[cfg(test)]
mod client;
#[cfg(test)]
mod faces;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kv_events;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod program;
#[cfg(test)]
mod serving;
