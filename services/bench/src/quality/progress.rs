//! A line on stderr that says how far it is: rewritten on a terminal, one for each tenth elsewhere.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::Mutex,
    time::Instant,
};

const WIDTH: usize = 30;

/// See the module's text.
pub struct Progress {
    title: String,
    all: usize,
    began: Instant,
    state: Mutex<State>,
}

struct State {
    done: usize,
    here: usize,
    requests: u64,
}

impl Progress {
    /// `done` of `all` need not be done again.
    pub fn begin(title: &str, all: usize, done: usize) -> Self {
        let state = Mutex::new(State { done, here: 0, requests: 0 });
        Self { title: title.to_owned(), all, began: Instant::now(), state }
    }

    /// A run of so many requests is over.
    pub fn one_more(&self, requests: u64) {
        let mut state = self.state.lock().expect("nobody panics while holding it");
        state.done += 1;
        state.here += 1;
        state.requests += requests;
        let tenth = |done: usize| done * 10 / self.all;
        if stderr().is_terminal() {
            eprint!("\r{}", self.line(&state));
            let _ = stderr().flush();
        } else if tenth(state.done) > tenth(state.done - 1) {
            eprintln!("{}", self.line(&state));
        }
    }

    pub fn end(&self) {
        let state = self.state.lock().expect("nobody panics while holding it");
        if state.here > 0 && stderr().is_terminal() {
            eprintln!();
        }
    }

    fn line(&self, state: &State) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let left_s = seconds / state.here as f64 * (self.all - state.done) as f64;
        let full = WIDTH * state.done / self.all;
        let bar = "█".repeat(full) + &"░".repeat(WIDTH - full);
        let per_minute = state.requests as f64 / seconds * 60.0;
        let Self { title, all, .. } = self;
        format!("{title} {bar} {}/{all} runs, {per_minute:.0} requests/min, {left_s:.0} s left  ", state.done)
    }
}
