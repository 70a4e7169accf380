//! Point-to-point calls: `send`, `recv`, `isend`, `irecv`, and batches of them.

use allranks_protocol::{Call, Direction, P2pCall, RankRef};
use serde_json::Value;

use super::groups::{Member, group_rank};
use super::{Library, Works};
use crate::c10d::{Error, Kind, Result, Work};

impl Library {
    /// Sends or receives one message, or a batch of messages.
    pub(super) fn message(&mut self, call: &Call, index: usize) -> Result<Value> {
        match call {
            Call::Send {
                group,
                tensor,
                peer,
                tag,
            } => {
                let membership = self.membership(group)?;
                let to = group_rank(&membership, *peer)?;
                let Some(member) = membership else {
                    return Ok(Value::Null);
                };
                not_self(&member, to, "destination")?;
                if let Some(work) = self.isend(&member, *tensor, to, *tag)? {
                    work.wait(None)?;
                }
                Ok(Value::Null)
            }
            Call::Recv {
                group,
                tensor,
                peer,
                tag,
            } => self.recv(group, *tensor, *peer, *tag),
            Call::Isend {
                group,
                tensor,
                peer,
                tag,
            } => {
                let membership = self.membership(group)?;
                let to = group_rank(&membership, *peer)?;
                let work = match membership {
                    Some(member) => self.isend(&member, *tensor, to, *tag)?,
                    None => None,
                };
                self.works.insert(index, Works::of(work));
                Ok(Value::Null)
            }
            Call::Irecv {
                group,
                tensor,
                peer,
                tag,
            } => {
                let work = match self.membership(group)? {
                    Some(member) => self.irecv(&member, *tensor, Some(*peer), *tag)?,
                    None => None,
                };
                self.works.insert(index, Works::of(work));
                Ok(Value::Null)
            }
            Call::BatchIsendIrecv { group, ops } => self.batch(group, ops).map(|()| Value::Null),
            _ => Err(Error::new(
                Kind::NotImplemented,
                format!("`{}` is no message", call.name()),
            )),
        }
    }

    fn isend(&self, member: &Member, tensor: usize, to: i64, tag: u32) -> Result<Option<Work>> {
        member.group.send(&self.real(tensor)?, to as i32, tag)
    }

    fn irecv(
        &self,
        member: &Member,
        tensor: usize,
        peer: Option<RankRef>,
        tag: u32,
    ) -> Result<Option<Work>> {
        let tensor = self.real(tensor)?;
        match peer {
            None => member.group.recv_any(&tensor, tag),
            Some(peer) => {
                let from = member.group_rank(peer)?;
                member.group.recv(&tensor, from as i32, tag)
            }
        }
    }

    /// Receives a message. Returns the sender's global rank, or what was passed as it.
    fn recv(&self, group: &str, tensor: usize, peer: Option<RankRef>, tag: u32) -> Result<Value> {
        let Some(member) = self.membership(group)? else {
            return Ok(Value::from(-1));
        };
        let work = self.irecv(&member, tensor, peer, tag)?;
        if let Some(work) = &work {
            work.wait(None)?;
        }
        let from = match (peer, &work) {
            (Some(RankRef::Global(rank)), _) => return Ok(Value::from(rank.0)),
            (Some(RankRef::Group(rank)), _) => rank,
            (None, Some(work)) => work.source()?,
            (None, None) => return Ok(Value::Null),
        };
        not_self(&member, i64::from(from), "source")?;
        member.global_rank(from).map(Value::from)
    }

    /// Makes a batch of messages, as one call where the backend can, then waits for every work of it.
    fn batch(&self, group: &str, ops: &[P2pCall]) -> Result<()> {
        let membership = self.membership(group)?;
        let peers = ops
            .iter()
            .map(|op| group_rank(&membership, op.peer))
            .collect::<Result<Vec<_>>>()?;
        let Some(first) = ops.first() else {
            return Err(Error::new(Kind::Index, "list index out of range"));
        };
        let Some(member) = membership else {
            return Ok(());
        };
        let first = self.tensor(first.tensor)?;
        let as_one = member.group.supports_coalescing(first)?;
        if as_one {
            member.group.start_coalescing(first)?;
        }
        let mut works = Vec::new();
        for (op, peer) in ops.iter().zip(peers) {
            let tensor = self.real(op.tensor)?;
            let work = match op.direction {
                Direction::Send => member.group.send(&tensor, peer as i32, op.tag)?,
                Direction::Recv => member.group.recv(&tensor, peer as i32, op.tag)?,
            };
            if !as_one {
                works.extend(work);
            }
        }
        if as_one {
            works.extend(member.group.end_coalescing(first)?);
        }
        works.iter().try_for_each(|work| work.wait(None))
    }
}

/// Refuses this rank as its own peer, as `send` and `recv` do; `isend` and `irecv` leave that to the backend.
fn not_self(member: &Member, rank: i64, end: &str) -> Result<()> {
    if rank != i64::from(member.rank) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Value,
        format!(
            "Invalid {end} rank: {end} rank should not be the same as the rank of the current process."
        ),
    ))
}
