//! Who belongs to the pool.

use std::collections::BTreeSet;

use pool::{EndpointId, Load, Moment};
use scheduling::{BLOCK_TOKENS, EndpointLatency};

use super::{ENDPOINTS_MAX, PoolDispatch};
use crate::{
    Membership, Reconciled,
    endpoint_state::{EndpointState, Presence},
};

/// Blocks an engine is taken to keep when it does not say: 2,000,000 tokens, so that the guess errs on the side of
/// remembering (the whole index has a budget of its own). The same as the upstream picker's default.
const BLOCKS_UNKNOWN: u32 = 31_250;

/// Blocks of ours that an engine's cache holds.
pub(super) fn blocks_max(load: &Load) -> u32 {
    let blocks = load.cache.map(|cache| cache.tokens() / u64::from(BLOCK_TOKENS));
    blocks.map_or(BLOCKS_UNKNOWN, |blocks| u32::try_from(blocks).unwrap_or(u32::MAX).max(1))
}

impl PoolDispatch {
    /// Makes these the members. An endpoint is the same one as before if its id is; a new id is a new life, without
    /// history. One that left gets no new work and is known until its last request ends, so nothing of it is ever
    /// counted elsewhere.
    pub fn set_endpoints(&mut self, members: &[Membership], now: Moment) -> Reconciled {
        let mut reconciled = Reconciled::default();
        let named: BTreeSet<EndpointId> = members.iter().map(|m| m.endpoint.id).collect();
        for slot in 0..self.endpoints.len() as u32 {
            reconciled.left += usize::from(self.leave_unless(slot, &named));
        }
        for member in members {
            let known = self.slots.get(&member.endpoint.id).copied();
            if known.is_none() && self.slots.len() >= ENDPOINTS_MAX {
                reconciled.refused += 1;
                continue;
            }
            match known {
                Some(slot) => self.update(slot, member),
                None => self.join(member, now),
            }
            reconciled.joined += usize::from(known.is_none());
        }
        reconciled.reinstated = self.reinstate_beyond_half();
        self.index.tidy();
        reconciled
    }

    /// Forgets an endpoint that has left and has nothing in flight any more.
    pub(super) fn forget_if_left(&mut self, slot: u32) {
        let done = |state: &EndpointState| state.presence == Presence::Leaving && state.own.total().requests == 0;
        if let Some(state) = self.endpoints[slot as usize].take_if(|state| done(state)) {
            self.slots.remove(&state.endpoint.id);
        }
    }

    fn leave_unless(&mut self, slot: u32, named: &BTreeSet<EndpointId>) -> bool {
        let Some(state) = &mut self.endpoints[slot as usize] else { return false };
        if named.contains(&state.endpoint.id) || state.presence == Presence::Leaving {
            return false;
        }
        state.presence = Presence::Leaving;
        if let Some(lane) = state.lane.take() {
            self.index.close(lane);
        }
        self.forget_if_left(slot);
        true
    }

    fn update(&mut self, slot: u32, member: &Membership) {
        let Some(state) = &mut self.endpoints[slot as usize] else { return };
        if state.presence == Presence::Leaving {
            state.lane = self.index.open(blocks_max(&state.load));
        }
        state.presence = member.standing.into();
        if state.endpoint != member.endpoint {
            state.name_hash = scheduling::name_hash(&member.endpoint.name);
            state.endpoint = member.endpoint.clone();
        }
    }

    fn join(&mut self, member: &Membership, now: Moment) {
        let mut state = EndpointState::new(member.endpoint.clone(), member.standing.into(), now);
        state.lane = self.index.open(blocks_max(&state.load));
        state.latency = EndpointLatency::new(&self.latency);
        let slot = match self.endpoints.iter().position(Option::is_none) {
            Some(free) => {
                self.endpoints[free] = Some(state);
                free
            }
            None => {
                self.endpoints.push(Some(state));
                self.endpoints.len() - 1
            }
        };
        self.slots.insert(member.endpoint.id, slot as u32);
    }
}
