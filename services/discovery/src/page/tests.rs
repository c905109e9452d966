//! Pages as engines write them, as they were seen broken, and as nobody would write them.

use proptest::prelude::*;

use super::*;

/// Off a running vLLM 0.32 with LoRA.
const VLLM_032: &str = include_str!("../../fixtures/vllm-0.32.0-lora-metrics.txt");

/// Just after the newest adapter set of the page above.
const VLLM_032_NOW_S: f64 = 1_796_049_575.0;

/// When its process started; `None` if the page does not say.
const VLLM_032_STARTED_S: Option<f64> = Some(1.79604949211e+09);

fn vllm(page: &str) -> Reading {
    read(page.as_bytes(), Engine::Vllm, 1_750_000_006.0)
}

fn auto(page: &str) -> Reading {
    read(page.as_bytes(), Engine::Auto, 1_750_000_006.0)
}

fn value(number: Option<Number>) -> Option<f64> {
    number.map(|number| number.value)
}

/// Waiting, running and KV use.
fn signals(reading: &Reading) -> [Option<f64>; 3] {
    [value(reading.waiting), value(reading.running), value(reading.kv_cache)]
}

fn reversed(page: &str) -> String {
    page.lines().rev().collect::<Vec<_>>().join("\n")
}

/// In file order, and reversed: the order of lines has no effect.
fn both_ways(page: &str) -> Reading {
    let reading = auto(page);
    assert_eq!(reading, auto(&reversed(page)), "{page}");
    reading
}

#[test]
fn a_page_off_a_real_vllm() {
    for engine in [Engine::Vllm, Engine::Auto] {
        let reading = read(VLLM_032.as_bytes(), engine, VLLM_032_NOW_S);
        assert_eq!(signals(&reading), [Some(0.0), Some(0.0), Some(0.0)]);
        assert_eq!(reading.kv_cache.unwrap().source, "vllm:kv_cache_usage_perc");
        assert_eq!(reading.cache, Some(CacheShape { block_tokens: 128, blocks: 8192 }));
        assert_eq!((reading.ranks, reading.skipped_samples), (1, 0));
        // The newest combination is the empty one; the one with `sql-lora` is of 0.2 s before.
        assert_eq!(reading.adapters, Some(ActiveAdapters { slots: Some(2), ..Default::default() }));
        let families = reading.families.unwrap();
        assert_eq!(families.dialect(), Dialect::Vllm);
        assert_eq!(families.missing().count(), 0);
        assert_eq!(families.found().count(), 5);
    }
    assert_eq!(read(VLLM_032.as_bytes(), Engine::Sglang, VLLM_032_NOW_S), Reading::default());
}

#[test]
fn the_start_of_the_process_is_read_where_it_is_told() {
    assert_eq!(read(VLLM_032.as_bytes(), Engine::Vllm, VLLM_032_NOW_S).started_unix_s, VLLM_032_STARTED_S);
    let started = |lines: &str| vllm(&format!("vllm:num_requests_waiting 0\n{lines}\n")).started_unix_s;
    assert_eq!(started("process_start_time_seconds 1.75e9\r"), Some(1.75e9));
    assert_eq!(
        started("process_start_time_seconds{pid=\"7\"} 1.75e9\nprocess_start_time_seconds{pid=\"8\"} 1.76e9"),
        Some(1.76e9)
    );
    for none in
        ["", "process_start_time_seconds NaN", "process_start_time_seconds 1.75e12", "process_start_time_seconds"]
    {
        assert_eq!(started(none), None, "{none}");
    }
    assert_eq!(started("process_start_time_seconds_total 1.75e9"), None);
    assert_eq!(vllm("process_start_time_seconds 1.75e9\n"), Reading::default(), "no engine's page");
}

#[test]
fn d01_a_missing_family_spoils_no_other() {
    let reading = both_ways(
        "vllm:num_requests_running{model_name=\"m1\"} 2\nvllm:num_requests_waiting{model_name=\"m1\"} 9\n\
         vllm:kv_cache_usage_perc{model_name=\"m1\"} 0.5\n",
    );
    assert_eq!(signals(&reading), [Some(9.0), Some(2.0), Some(0.5)]);
    assert_eq!((reading.adapters.as_ref(), reading.cache), (None, None));
    let missing: Vec<_> = reading.families.unwrap().missing().collect();
    assert_eq!(missing, ["vllm:cache_config_info", "vllm:lora_requests_info"]);
}

#[test]
fn d02_data_parallel_series_are_summed() {
    let reading = both_ways(
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"m1\"} 12\nvllm:num_requests_waiting{engine=\"1\",model_name=\"m1\"} 0\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m1\"} 0.9\nvllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m1\"} 0.1\n",
    );
    assert_eq!((value(reading.waiting), value(reading.kv_cache), reading.ranks), (Some(12.0), Some(0.5), 2));
}

#[test]
fn d02_tensor_and_pipeline_parallel_series_are_one_scheduler() {
    let series = |dp: u8, tp: u8, pp: u8, waiting: u8| {
        format!(
            "sglang:num_queue_reqs{{dp_rank=\"{dp}\",model_name=\"m\",pp_rank=\"{pp}\",tp_rank=\"{tp}\"}} {waiting}\n"
        )
    };
    let mut page = String::new();
    for (tp, pp) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        page += &series(0, tp, pp, 4);
        page += &series(1, tp, pp, 2);
    }
    let reading = both_ways(&page);
    assert_eq!((value(reading.waiting), reading.ranks), (Some(6.0), 2));
}

#[test]
fn d02_blocks_repeated_by_each_rank_are_not_summed() {
    let reading = both_ways(
        "vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"27767\"} 1.0\n\
         vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"27767\"} 1.0\n\
         vllm:cache_config_info{block_size=\"16\",engine=\"2\",num_gpu_blocks=\"None\"} 1.0\n",
    );
    assert_eq!(reading.cache, Some(CacheShape { block_tokens: 16, blocks: 27767 }));
    let starting = vllm("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\n");
    assert_eq!((starting.cache, starting.families.is_some()), (None, true));
}

fn lora(running: &str, waiting: &str, at: &str) -> String {
    format!(
        "vllm:lora_requests_info{{max_lora=\"4\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"}} {at}\n"
    )
}

fn active(running: &[&str], waiting: &[&str]) -> ActiveAdapters {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    ActiveAdapters { running: owned(running), waiting: owned(waiting), slots: Some(4) }
}

#[test]
fn d03_the_newest_adapter_set_wins() {
    let page =
        [lora("", "", "1.75e+09"), lora("a, b", "", "1.750000005e+09"), lora("a", "c", "1.750000003e+09")].concat();
    assert_eq!(both_ways(&page).adapters, Some(active(&["a", "b"], &[])));
}

#[test]
fn e07_an_adapter_in_both_lists_counts_once() {
    let page = [lora("b,a,a", "a,c", "1.750000005e+09")].concat();
    assert_eq!(both_ways(&page).adapters, Some(active(&["a", "b"], &["c"])));
}

#[test]
fn an_old_adapter_set_is_of_the_past_unless_requests_run() {
    let page = lora("a", "a", "1.75e+09");
    assert_eq!(vllm(&page).adapters, Some(active(&[], &[])));
    let idle = page.clone() + "vllm:num_requests_running 0\n";
    assert_eq!(vllm(&idle).adapters, Some(active(&[], &[])));
    let busy = page.clone() + "vllm:num_requests_running 1\n";
    assert_eq!(vllm(&busy).adapters, Some(active(&["a"], &[])));
    assert_eq!(read(page.as_bytes(), Engine::Vllm, 1_750_000_004.9).adapters, Some(active(&["a"], &[])));
}

#[test]
fn summed_times_of_several_api_servers_are_the_latest() {
    let page = [lora("a", "a", "3.5e+09"), lora("b", "b", "1.750000005e+09")].concat();
    assert_eq!(both_ways(&page).adapters, Some(active(&["a"], &[])));
}

#[test]
fn ranks_that_report_adapters_in_turn_are_joined() {
    let sets =
        [lora("a", "a", "1.750000005e+09"), lora("b", "b", "1.7500000048e+09"), lora("c", "c", "1.75e+09")].concat();
    assert_eq!(both_ways(&sets).adapters, Some(active(&["a"], &[])));
    let ranks = "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 1\n";
    assert_eq!(both_ways(&(sets + ranks)).adapters, Some(active(&["a", "b"], &[])));
}

#[test]
fn d04_old_and_new_names_newest_first() {
    for (page, kv, source) in [
        ("vllm:gpu_cache_usage_perc 0.95\n", 0.95, "vllm:gpu_cache_usage_perc"),
        ("vllm:kv_cache_usage_perc 0.05\n", 0.05, "vllm:kv_cache_usage_perc"),
        ("vllm:gpu_cache_usage_perc 0.95\nvllm:kv_cache_usage_perc 0.05\n", 0.05, "vllm:kv_cache_usage_perc"),
        ("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.95\n", 0.95, "vllm:gpu_cache_usage_perc"),
    ] {
        assert_eq!(both_ways(page).kv_cache, Some(Number { value: kv, source }), "{page}");
    }
}

#[test]
fn d04_every_engine_is_known_by_its_names() {
    let sglang = "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"Qwen/Qwen3-32B\",tp_rank=\"0\"} 12.0\n\
                  sglang:num_queue_reqs{engine_type=\"unified\",model_name=\"Qwen/Qwen3-32B\",tp_rank=\"0\"} 3.0\n\
                  sglang:token_usage{engine_type=\"unified\",model_name=\"Qwen/Qwen3-32B\",tp_rank=\"0\"} 0.28\n\
                  sglang:max_total_num_tokens{engine_type=\"unified\",model_name=\"Qwen/Qwen3-32B\",tp_rank=\"0\"} 307328.0\n";
    let paged = "sglang:page_size 64\nsglang:num_pages{dp_rank=\"0\"} 100\nsglang:num_pages{dp_rank=\"1\"} 100\n";
    let trtllm = "trtllm_num_requests_running{model_name=\"m\",engine_type=\"x\"} 2\ntrtllm_num_requests_waiting 1\n\
                  trtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_max_blocks 1000\ntrtllm_kv_cache_tokens_per_block 32\n";
    let triton = "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 4\n\
                  nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 7\n\
                  nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 512\n\
                  nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\",version=\"1\"} 0.25\n\
                  nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\",version=\"1\"} 1000\n\
                  nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"m\",version=\"1\"} 64\n\
                  nv_inference_pending_request_count{model=\"m\",version=\"1\"} 9\n";
    let plain_triton = "nv_inference_pending_request_count{model=\"a\",version=\"1\"} 9\n\
                        nv_inference_pending_request_count{model=\"b\",version=\"1\"} 1\nnv_inference_exec_count{model=\"a\"} 5\n";
    let llamacpp = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n";
    let shape = |block_tokens, blocks| Some(CacheShape { block_tokens, blocks });
    for (page, dialect, expected, cache) in [
        (sglang, Dialect::Sglang, [Some(3.0), Some(12.0), Some(0.28)], shape(1, 307_328)),
        (paged, Dialect::Sglang, [None, None, None], shape(64, 200)),
        (trtllm, Dialect::Trtllm, [Some(1.0), Some(2.0), Some(0.5)], shape(32, 1000)),
        (triton, Dialect::Triton, [Some(4.0), Some(7.0), Some(0.25)], shape(64, 1000)),
        (plain_triton, Dialect::Triton, [Some(10.0), None, None], None),
        (llamacpp, Dialect::Llamacpp, [Some(2.0), Some(1.0), None], None),
    ] {
        let reading = both_ways(page);
        assert_eq!(reading.families.map(Families::dialect), Some(dialect), "{page}");
        assert_eq!((signals(&reading), reading.cache, reading.skipped_samples), (expected, cache, 0), "{page}");
    }
}

#[test]
fn sglang_priorities_are_parts_of_the_total() {
    let page = "sglang:num_queue_reqs{model_name=\"m\",priority=\"\"} 9\nsglang:num_queue_reqs{model_name=\"m\",priority=\"1\"} 4\n\
                sglang:num_queue_reqs{model_name=\"m\",priority=\"5\"} 5\n";
    assert_eq!(value(both_ways(page).waiting), Some(9.0));
}

#[test]
fn tgi_families_not_used_yet_are_zero() {
    let fresh = "# TYPE tgi_request_count counter\ntgi_request_count 0\n";
    let reading = both_ways(fresh);
    assert_eq!(signals(&reading), [Some(0.0), Some(0.0), None]);
    assert_eq!(reading.families.map(Families::dialect), Some(Dialect::Tgi));
    let busy = "tgi_queue_size 4\ntgi_batch_current_size 17\ntgi_batch_current_max_tokens 1000\ntgi_batch_max_total_tokens 4000\n";
    let reading = both_ways(busy);
    assert_eq!(signals(&reading), [Some(4.0), Some(17.0), Some(0.25)]);
    assert_eq!(reading.cache, Some(CacheShape { block_tokens: 1, blocks: 4000 }));
    // A family that is there and broken is missing, not unused.
    assert_eq!(value(both_ways("tgi_queue_size NaN\n").waiting), None);
    assert_eq!(auto("").families, None);
}

#[test]
fn d05_every_legal_way_of_writing_a_sample() {
    for line in [
        r#"vllm:num_requests_waiting{model_name="a{b},c=\"d\" e\\",engine="0"} 3"#,
        r#"vllm:num_requests_waiting{engine="0",} 3"#,
        r#"vllm:num_requests_waiting{ engine = "0" } 3"#,
        "vllm:num_requests_waiting{engine=\"0\"}\t3",
        "vllm:num_requests_waiting{engine=\"0\"} 3\r",
        "vllm:num_requests_waiting 3\r",
        "  vllm:num_requests_waiting  3  ",
        "\tvllm:num_requests_waiting\t3\t",
        "vllm:num_requests_waiting {engine=\"0\"} 3",
        "vllm:num_requests_waiting 0.3e1",
        "vllm:num_requests_waiting 0x1.8p1",
        "{\"vllm:num_requests_waiting\",engine=\"0\"} 3",
        "{\"vllm:num_requests_waiting\"} 3",
    ] {
        for end in ["", "\n", "\n# EOF", "\n# EOF\n"] {
            let reading = both_ways(&format!("{line}{end}"));
            assert_eq!((value(reading.waiting), reading.skipped_samples), (Some(3.0), 0), "{line:?}");
        }
    }
}

#[test]
fn d06_histogram_junk_is_ignored() {
    let junk = "x_bucket{le=\"1\"} 2\nx_bucket{le=\"0.1\"} 5\nx_bucket{le=\"+Inf\"} 2\nx_count 1\nx_sum NaN\n\
                vllm:num_requests_waiting_bucket{le=\"1\"} 7\nvllm:num_requests_waiting_created 1.7e9\n\
                vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 7\nvllm:num_requests_wait 7\n";
    let reading = both_ways(&format!("{junk}vllm:num_requests_waiting 3\n"));
    assert_eq!((value(reading.waiting), reading.skipped_samples), (Some(3.0), 0));
    assert_eq!(auto(junk).families, None);
}

#[test]
fn d07_time_stamps_are_ignored() {
    for form in ["4 -1", "4 1750000000000", "4 1750000000.5\n# EOF", "4.0 1750000000.5 # {trace_id=\"x\"} 1"] {
        assert_eq!(
            value(both_ways(&format!("vllm:num_requests_running{{model_name=\"m1\"}} {form}")).running),
            Some(4.0)
        );
    }
}

#[test]
fn d08_one_wrong_sample_costs_only_itself() {
    let page = "# TYPE y summary\ny{quantile=\"0.5\"} 0\ny 1\nvllm:num_requests_waiting{engine=\"0\"} four\n\
                vllm:num_requests_waiting{engine=\"1\" 9\nvllm:num_requests_waiting{engine=\"2\"} 5\n\
                # TYPE vllm:num_requests_waiting gauge\n# TYPE vllm:num_requests_waiting gauge\n\
                vllm:num_requests_running 2\nvllm:num_requests_running 2";
    let reading = both_ways(page);
    assert_eq!(signals(&reading), [Some(5.0), Some(2.0), None]);
    assert_eq!(reading.skipped_samples, 2);
}

#[test]
fn d10_pages_that_say_nothing_say_not_idle() {
    for page in [
        "",
        "\n",
        "# EOF",
        "<html><body>404 {vllm:num_requests_waiting} 3</body></html>",
        "[]",
        "{\"a\": 1}",
        "\0\u{1}\u{2}",
    ] {
        assert_eq!(both_ways(page), Reading::default(), "{page:?}");
    }
    // vLLM with --disable-log-stats.
    assert_eq!(auto("python_info{version=\"3.11\"} 1.0\nprocess_open_fds 34.0\n"), Reading::default());
}

#[test]
fn d13_nan_infinite_and_negative_are_missing() {
    for bad in ["NaN", "-1", "+Inf", "-Inf", "1.7e308"] {
        let page =
            format!("vllm:kv_cache_usage_perc {bad}\nvllm:num_requests_waiting {bad}\nvllm:num_requests_running 1\n");
        let reading = both_ways(&page);
        assert_eq!(signals(&reading), [None, Some(1.0), None], "{bad}");
        assert_eq!(reading.skipped_samples, 2, "{bad}");
    }
    // One rank's NaN is not the other's.
    let ranks = "vllm:num_requests_waiting{engine=\"0\"} NaN\nvllm:num_requests_waiting{engine=\"1\"} 6\n";
    assert_eq!(value(both_ways(ranks).waiting), Some(6.0));
}

#[test]
fn a_page_of_several_engines_is_the_first_ones() {
    let page = "llamacpp:requests_deferred 2\nvllm:num_requests_waiting 3\n";
    let reading = both_ways(page);
    assert_eq!((value(reading.waiting), reading.families.map(Families::dialect)), (Some(3.0), Some(Dialect::Vllm)));
    assert_eq!(value(read(page.as_bytes(), Engine::Llamacpp, 0.0).waiting), Some(2.0));
    assert_eq!(read(page.as_bytes(), Engine::None, 0.0), Reading::default());
}

#[test]
fn no_table_is_larger_than_its_bits() {
    for dialect in Dialect::ALL {
        assert!(dialect.rows().len() <= ROWS_MAX, "{dialect:?}");
        for row in dialect.rows() {
            assert!(row.name.as_bytes().starts_with(dialect.prefix()), "{}", row.name);
        }
    }
}

/// Lines that matter, lines that nearly do, and pieces of both.
fn line() -> impl Strategy<Value = String> {
    let names: Vec<&str> = Dialect::ALL.iter().flat_map(|dialect| dialect.rows()).map(|row| row.name).collect();
    let name = prop_oneof![8 => prop::sample::select(names), 1 => Just("vllm:x_bucket"), 1 => Just("tgi_x")];
    let label = prop::sample::select(vec![
        "",
        "engine=\"0\"",
        "engine=\"1\",model_name=\"m\"",
        "dp_rank=\"1\"",
        "priority=\"\"",
        "priority=\"2\"",
        "tp_rank=\"1\"",
        "request_type=\"waiting\"",
        "kv_cache_block_type=\"fraction\"",
        "kv_cache_block_type=\"max\"",
        "kv_cache_block_type=\"tokens_per\"",
        "block_size=\"16\",num_gpu_blocks=\"100\"",
        "running_lora_adapters=\"a,b\",waiting_lora_adapters=\"b\"",
        "a=\"{\\\"}\\\\\"",
        "broken",
        "a=\"",
    ]);
    let value = prop_oneof![
        (0u32..50).prop_map(|n| n.to_string()),
        (0.0..1.2f64).prop_map(|x| x.to_string()),
        any::<f64>().prop_map(|x| format!("{x:e}")),
        prop::sample::select(vec!["NaN", "+Inf", "1750000005", "x", "", "3 -1", "3 # {} 1", "0x1p3"])
            .prop_map(String::from),
    ];
    (name, label, value).prop_map(|(name, label, value)| format!("{name}{{{label}}} {value}"))
}

fn check_sane(reading: &Reading) {
    let [waiting, running, kv_cache] = signals(reading);
    for count in [waiting, running].into_iter().flatten() {
        assert!(count.is_finite() && count >= 0.0, "{reading:?}");
    }
    assert!(kv_cache.is_none_or(|share| (0.0..=1.0).contains(&share)), "{reading:?}");
    assert!(reading.cache.is_none_or(|shape| shape.block_tokens > 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_lines_has_no_effect(
        (lines, shuffled) in prop::collection::vec(line(), 0..40).prop_flat_map(|lines| (Just(lines.clone()), Just(lines).prop_shuffle()))
    ) {
        let reading = auto(&lines.join("\n"));
        check_sane(&reading);
        prop_assert_eq!(reading, auto(&shuffled.join("\n")));
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        check_sane(&read(&bytes, Engine::Auto, 1e9));
    }

    #[test]
    fn a_real_page_with_bytes_changed_is_survived(
        changes in prop::collection::vec((0..VLLM_032.len(), prop_oneof![any::<u8>(), Just(b'"'), Just(b'\n'), Just(b'\\'), Just(b'{')]), 0..64),
        cut in 0..VLLM_032.len(),
    ) {
        let mut page = VLLM_032.as_bytes().to_vec();
        changes.into_iter().for_each(|(at, byte)| page[at] = byte);
        page.truncate(cut);
        check_sane(&read(&page, Engine::Auto, VLLM_032_NOW_S));
    }

    #[test]
    fn bytes_behind_a_known_name_are_survived(rest in prop::collection::vec(any::<u8>(), 0..128), row in 0..6usize) {
        let mut page = VLLM_ROWS[row].as_bytes().to_vec();
        page.extend(rest);
        check_sane(&read(&page, Engine::Vllm, 1e9));
    }
}

const VLLM_ROWS: [&str; 6] = [
    "vllm:num_requests_waiting{",
    "vllm:num_requests_waiting ",
    "vllm:kv_cache_usage_perc{engine=\"0\",",
    "vllm:cache_config_info{block_size=\"",
    "vllm:lora_requests_info{running_lora_adapters=\"",
    "{\"vllm:num_requests_waiting\"",
];
