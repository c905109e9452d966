//! Agreeing without talking: given the same prompt and the same endpoint names, every gateway ranks the endpoints alike.
//!
//! Rendezvous hashing: each endpoint draws a number from (key, name) and the highest draw wins. When an endpoint leaves,
//! only the prompts that it had won move. Names are used, not ids, since ids differ from process to process.

use xxhash_rust::xxh3::xxh3_64;

/// The number that stands for an endpoint's name in `draw`. Worked out once per endpoint.
pub fn name_hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

/// The draw of one endpoint for one key. The finaliser is that of SplitMix64, whose output bits all depend on all
/// input bits, so that neighbouring keys do not favour the same endpoint.
pub(crate) fn draw(key: u64, name_hash: u64) -> u64 {
    let mut z = key ^ name_hash.rotate_left(32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_share_the_keys_evenly_and_keep_theirs_when_another_leaves() {
        let names: Vec<u64> = (0..4).map(|i| name_hash(&format!("llama-{i}"))).collect();
        let winner = |key: u64, among: &[u64]| *among.iter().max_by_key(|&&n| draw(key, n)).unwrap();
        let mut won = [0; 4];
        for key in 0..4_000 {
            let first = winner(key, &names);
            won[names.iter().position(|&n| n == first).unwrap()] += 1;
            if first != names[3] {
                assert_eq!(winner(key, &names[..3]), first);
            }
        }
        assert!(won.iter().all(|n| (850..1_150).contains(n)), "{won:?}");
    }
}
