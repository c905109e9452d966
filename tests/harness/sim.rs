//! A simulated model server as a process of its own.

use std::{net::SocketAddr, process::Command};

use serde_json::Value;

use crate::{
    http::{Answer, request},
    programs::{Program, program},
};

/// A running simulated model server.
pub struct Sim {
    /// The process.
    pub process: Program,
    /// Where it serves.
    pub address: SocketAddr,
    /// Where faults are set; it answers also while the server refuses connections.
    pub admin: SocketAddr,
}

impl Sim {
    /// Starts one with these options; unless they say otherwise a hundred times faster than the GPUs it plays, which on a
    /// machine under load leaves few events of a stream, since tokens that are late come together.
    ///
    /// # Panics
    /// When it does not say where it listens.
    pub fn start(options: &[&str]) -> Self {
        let mut command = Command::new(program("model-sim"));
        if !options.contains(&"--time-scale") {
            command.args(["--time-scale", "0.01"]);
        }
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).args(options);
        let mut process = Program::start(&mut command);
        let line = process.line();
        let bound = line.as_deref().and_then(|line| serde_json::from_str::<Value>(line).ok());
        let bound = bound.unwrap_or_else(|| panic!("the simulated server did not start: {line:?} ({options:?})"));
        let address = |key: &str| bound[key].as_str().and_then(|text| text.parse().ok()).expect("an address");
        Self { address: address("listen"), admin: address("admin"), process }
    }

    /// Replaces its faults; the members are those of `PUT /sim/faults`.
    ///
    /// # Panics
    /// When it does not take them.
    pub fn faults(&self, faults: &Value) {
        let answer = self.ask("PUT", "/sim/faults", &faults.to_string());
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Ends all faults and forgets the requests seen so far.
    pub fn reset(&self) {
        self.ask("POST", "/sim/reset", "");
    }

    /// The inference requests it saw, oldest first, without looks at health, metrics and models.
    ///
    /// # Panics
    /// When it does not list them.
    pub fn requests(&self) -> Vec<Value> {
        let seen = self.ask("GET", "/sim/requests", "").json();
        let list = seen["requests"].as_array().expect("a list of requests");
        list.iter().filter(|request| request["method"] != "GET").cloned().collect()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        request(self.admin, method, path, &[("content-type", "application/json")], body)
    }
}
