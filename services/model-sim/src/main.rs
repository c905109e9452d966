//! The program: reads the command line, starts one simulated server, says where it listens, stops on a signal.
//!
//! On stdout it prints one line of JSON when it is bound and nothing else; it logs to stderr.

use std::{io::Write, net::SocketAddr, time::Duration};

use anyhow::Context;
use clap::Parser;
use engine::Profile;
use model_sim::{Adapter, Face, KvEvents, Options, Version};
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A simulated model server: vLLM, SGLang or TGI without a GPU.
#[derive(Debug, Parser)]
#[command(name = "model-sim", version)]
struct Cli {
    /// Whose outside to show: vllm, sglang or tgi.
    #[arg(long, default_value = "vllm")]
    engine: Face,
    /// Release to show, such as 0.9, 0.10.2 or 0.33 [default: the newest known].
    #[arg(long)]
    engine_version: Option<Version>,
    /// Model and GPUs, as a name of the engine's table.
    #[arg(long, default_value = "llama-3.1-8b-h100")]
    profile: String,
    /// Path or name of the model.
    #[arg(long, default_value = "llama-3.1-8b")]
    model: String,
    /// Names the model is served under [default: the model's].
    #[arg(long, num_args = 1..)]
    served_model_name: Vec<String>,
    /// A LoRA adapter, NAME or NAME=PATH; may be repeated.
    #[arg(long)]
    lora: Vec<Adapter>,
    /// Serve adapters although none is named.
    #[arg(long)]
    enable_lora: bool,
    /// Different adapters in one batch.
    #[arg(long)]
    max_loras: Option<u32>,
    /// Longest prompt plus output, tokens.
    #[arg(long)]
    max_model_len: Option<u32>,
    /// Requests in one batch.
    #[arg(long)]
    max_num_seqs: Option<u32>,
    /// Tokens in one step.
    #[arg(long)]
    max_num_batched_tokens: Option<u32>,
    /// KV blocks.
    #[arg(long)]
    num_gpu_blocks: Option<u32>,
    /// Order waiting requests by their priority.
    #[arg(long)]
    priority_scheduling: bool,
    /// Data-parallel ranks behind the one port.
    #[arg(long, default_value_t = 1)]
    data_parallel_size: usize,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A second address, for /sim/…, which stays reachable while the first refuses connections.
    #[arg(long)]
    admin: Option<SocketAddr>,
    /// Seconds of real time per simulated second: 0.1 is ten times faster.
    #[arg(long, default_value_t = 1.0, conflicts_with = "speed")]
    time_scale: f64,
    /// How many times faster than real time: 10 is the same as --time-scale 0.1.
    #[arg(long)]
    speed: Option<f64>,
    /// KV-cache events over ZMQ, as vLLM takes it: a JSON object with enable_kv_cache_events, endpoint,
    /// replay_endpoint, topic and so on.
    #[arg(long, value_name = "JSON", value_parser = kv_events)]
    kv_events_config: Option<KvEvents>,
    /// Seed of jitter and texts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Key that paths under /v1 ask for.
    #[arg(long)]
    api_key: Option<String>,
    /// Answer with x-request-id.
    #[arg(long)]
    enable_request_id_headers: bool,
    /// Refuse with 503 beyond so many queued requests.
    #[arg(long)]
    max_num_queued_reqs: Option<usize>,
    /// TGI: refuse with 429 beyond so many requests in flight.
    #[arg(long)]
    max_concurrent_requests: Option<usize>,
    /// How long requests may go on after SIGTERM, real seconds.
    #[arg(long, default_value_t = 0)]
    shutdown_timeout: u64,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("MODEL_SIM_LOG").unwrap_or_else(|_| "warn".into()))
        .init();
    let options = options(Cli::parse())?;
    // One core is enough for thousands of streams, and several of these share a machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(options))
}

async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let running = model_sim::start(options).await?;
    let mut line = serde_json::json!({"listen": running.address().to_string()});
    if let Some(admin) = running.admin_address() {
        line["admin"] = admin.to_string().into();
    }
    if !running.kv_event_sources().is_empty() {
        let sources = running.kv_event_sources().iter();
        let sources =
            sources.map(|s| serde_json::json!({"endpoint": s.endpoint, "replay_endpoint": s.replay_endpoint}));
        line["kv_events"] = sources.collect();
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("cannot say where it listens")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    running.stop().await;
    Ok(())
}

fn kv_events(text: &str) -> Result<KvEvents, serde_json::Error> {
    serde_json::from_str(text)
}

fn options(cli: Cli) -> anyhow::Result<Options> {
    let mut profile = Profile::named(&cli.profile)?;
    for (chosen, field) in [
        (cli.max_loras, &mut profile.max_loras),
        (cli.max_model_len, &mut profile.max_model_tokens),
        (cli.max_num_seqs, &mut profile.max_seqs),
        (cli.max_num_batched_tokens, &mut profile.max_batched_tokens),
        (cli.num_gpu_blocks, &mut profile.kv_blocks),
    ] {
        if let Some(chosen) = chosen {
            anyhow::ensure!(chosen > 0, "limits of the engine must be at least 1");
            *field = chosen;
        }
    }
    if cli.priority_scheduling {
        profile.policy = engine::Policy::Priority;
    }
    let mut options = Options::new(cli.engine, profile, &cli.model);
    options.version = cli.engine_version.unwrap_or(options.version);
    if !cli.served_model_name.is_empty() {
        options.served_names = cli.served_model_name;
    }
    options.adapters = cli.lora;
    options.lora = cli.enable_lora;
    options.listen = cli.listen;
    options.admin = cli.admin;
    options.time_scale = cli.speed.map_or(cli.time_scale, f64::recip);
    options.kv_events = cli.kv_events_config.filter(KvEvents::publishes);
    options.seed = cli.seed;
    options.api_key = cli.api_key;
    options.ranks = cli.data_parallel_size;
    options.request_id_headers = cli.enable_request_id_headers;
    options.queued_requests_max = cli.max_num_queued_reqs;
    options.concurrent_requests_max = cli.max_concurrent_requests.unwrap_or(options.concurrent_requests_max);
    options.shutdown_timeout = Duration::from_secs(cli.shutdown_timeout);
    Ok(options)
}
