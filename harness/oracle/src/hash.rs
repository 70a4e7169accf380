//! The hash behind every byte the oracle makes: a key for each block of data, and a word for each element of it.
//!
//! It is the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): two multiplications an element, every input bit
//! reaching every output bit. Nothing here is random; the same seed gives the same bytes everywhere.

/// What a word is for; keeps the streams apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    /// Elements of a rank's block.
    Block,
    /// What all ranks know of an index: which rank contributes a factor, and which factor.
    Shared,
    /// What outputs begin with.
    Sentinel,
    /// What surrounds a tensor in its storage.
    Guard,
    /// Python objects.
    Object,
}

/// The key of a stream; words of different keys are independent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Key {
    /// Returns the key of a check's data. `salt` tells attempts at the same check apart.
    pub(super) fn of_check(seed: u64, call: u32, salt: u32) -> Self {
        Self(mix(
            mix(seed ^ GOLDEN) ^ (u64::from(call) << 32 | u64::from(salt))
        ))
    }

    /// Returns the key of one stream of it: for blocks, `a` is the rank and `b` the slot.
    pub(super) fn stream(self, stream: Stream, a: u32, b: u32) -> Self {
        let which = mix(u64::from(a) << 32 | u64::from(b));
        Self(mix(self.0
            ^ which
                .wrapping_add((stream as u64 + 1).wrapping_mul(GOLDEN))))
    }

    /// Returns the word at an index.
    #[inline]
    pub(super) fn word(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(GOLDEN)))
    }
}

/// Returns a bijection of words in which every bit depends on every bit.
#[inline]
pub(super) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns a number in `0..bound`, from the high bits of a word.
#[inline]
pub(super) fn below(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

/// The same for a bound of at most 32 bits, several at a time where the processor can.
#[inline]
pub(super) fn narrow(word: u64, bound: u64) -> u64 {
    ((word >> 32) * bound) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_ranks_slots_and_indices_have_words_of_their_own() {
        let mut seen = std::collections::HashSet::new();
        for call in 0..4 {
            let check = Key::of_check(7, call, 0);
            for stream in [
                Stream::Block,
                Stream::Shared,
                Stream::Sentinel,
                Stream::Guard,
            ] {
                for rank in 0..8 {
                    for slot in 0..8 {
                        for index in 0..16 {
                            assert!(seen.insert(check.stream(stream, rank, slot).word(index)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn below_covers_its_range_and_no_more() {
        let key = Key::of_check(1, 2, 3);
        let mut hit = [0; 5];
        for index in 0..1000 {
            hit[below(key.word(index), 5) as usize] += 1;
            assert!(narrow(key.word(index), 5) < 5);
            let wide = 1 << 32;
            assert_eq!(narrow(key.word(index), wide), below(key.word(index), wide));
        }
        assert!(
            hit.iter().all(|count| (150..250).contains(count)),
            "{hit:?}"
        );
    }
}
