//! The last batches of a rank, to be had again.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

#[derive(Debug)]
pub(super) struct Buffer {
    batches_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    batches: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

/// Bytes kept, whatever number of batches is asked for.
const BYTES_MAX: usize = 64 << 20;

impl Buffer {
    /// Keeps the last `batches_max` batches, or as many of them as there is room for.
    pub(super) fn new(batches_max: usize) -> Self {
        Self { batches_max, kept: Mutex::default() }
    }

    pub(super) fn keep(&self, number: u64, batch: Bytes) {
        let mut kept = self.kept.lock();
        kept.bytes += batch.len();
        kept.batches.push_back((number, batch));
        while kept.batches.len() > self.batches_max || kept.bytes > BYTES_MAX {
            let Some((_, oldest)) = kept.batches.pop_front() else { break };
            kept.bytes -= oldest.len();
        }
    }

    /// Batches kept with this number or a later one, in order.
    pub(super) fn since(&self, number: u64) -> Vec<(u64, Bytes)> {
        self.kept.lock().batches.iter().filter(|(kept, _)| *kept >= number).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_by_number_and_by_size() {
        let buffer = Buffer::new(3);
        (0..5).for_each(|number| buffer.keep(number, Bytes::from_static(b"batch")));
        let numbers = |from| buffer.since(from).into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!((numbers(0), numbers(4), numbers(9)), (vec![2, 3, 4], vec![4], vec![]));
        buffer.keep(5, Bytes::from(vec![0; BYTES_MAX - 5]));
        assert_eq!(numbers(0), [4, 5]);
    }
}
