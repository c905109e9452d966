//! `inference-gateway`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use gateway::{control, options::Options, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.check { check(&options) } else { run::run(&options) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(options: &Options) -> anyhow::Result<()> {
    let path = options.config.as_deref().context("--config says what to check")?;
    let (_, loaded) = control::load(path)?;
    control::check(&loaded)?;
    for notice in &loaded.notices {
        eprintln!("notice: {notice}");
    }
    Ok(())
}
