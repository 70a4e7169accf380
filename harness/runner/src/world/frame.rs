//! Reads and writes frames: `u32 header length | u64 payload length | header (JSON) | payload (bytes)`, little-endian.
//!
//! Lengths are limited before anything is allocated, so a bad frame is an error and never a huge allocation.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use allranks_model::excerpt::excerpt_within;
use allranks_protocol::{MAX_HEADER, MAX_PAYLOAD};

/// Payload is read in pieces of this size in bytes, so that a wrong length costs no memory.
const CHUNK: usize = 1 << 20;
/// Frames with payloads up to this size in bytes are joined and written in one piece, so that their reader wakes up
/// once.
const JOIN: usize = 64 << 10;

/// Most bytes that are quoted of a header which is none.
const EXCERPT: usize = 200;

/// A frame: its header, and the bytes that belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame<H> {
    /// The message.
    pub header: H,
    /// Raw storages, one after another; empty for most frames.
    pub payload: Vec<u8>,
}

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer closed the socket between two frames.
    #[error("connection closed")]
    Closed,
    /// The peer closed the socket inside a frame, or the socket failed.
    #[error("connection broke: {0}")]
    Io(#[from] io::Error),
    /// The connection was a rank's to its node agent, which says why it ended.
    #[error("{0}")]
    AtNode(String),
    /// A length is over its limit.
    #[error("not a frame: it claims a header of {header} and a payload of {payload} bytes")]
    TooLong {
        /// The header length that the frame claims, in bytes.
        header: u64,
        /// The payload length that the frame claims, in bytes.
        payload: u64,
    },
    /// The header is not the JSON that is expected here.
    #[error("bad frame header: {reason}: {excerpt}")]
    BadHeader {
        /// The reason that serde gives.
        reason: String,
        /// The first bytes of the header, lossily decoded.
        excerpt: String,
    },
}

/// Writes one frame and flushes it.
///
/// # Errors
/// Fails if the socket does.
pub async fn write_frame<H: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    header: &H,
    payload: &[&[u8]],
) -> io::Result<()> {
    let header = serde_json::to_vec(header)?;
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let mut front = Vec::with_capacity(12 + header.len());
    front.extend((header.len() as u32).to_le_bytes());
    front.extend((length as u64).to_le_bytes());
    front.extend(header);
    if length <= JOIN {
        front.extend(payload.concat());
        to.write_all(&front).await?;
    } else {
        to.write_all(&front).await?;
        for part in payload {
            to.write_all(part).await?;
        }
    }
    to.flush().await
}

/// Reads one frame.
///
/// # Errors
/// [`FrameError::Closed`] if the peer closed between frames; otherwise the socket's or the codec's error.
pub async fn read_frame<H: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Frame<H>, FrameError> {
    read_frame_within(from, MAX_HEADER, MAX_PAYLOAD).await
}

/// Reads one frame, with other limits in bytes for header and payload.
///
/// # Errors
/// As those of [`read_frame`].
pub async fn read_frame_within<H: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    max_header: usize,
    max_payload: u64,
) -> Result<Frame<H>, FrameError> {
    let mut front = [0_u8; 12];
    if from.read(&mut front[..1]).await? == 0 {
        return Err(FrameError::Closed);
    }
    from.read_exact(&mut front[1..]).await?;
    let (header, payload) = front.split_at(4);
    let header = u32::from_le_bytes(header.try_into().expect("four bytes")) as usize;
    let length = u64::from_le_bytes(payload.try_into().expect("eight bytes"));
    if header > max_header || length > max_payload {
        return Err(FrameError::TooLong {
            header: header as u64,
            payload: length,
        });
    }
    let text = read_chunks(from, header as u64).await?;
    let header = serde_json::from_slice(&text).map_err(|error| FrameError::BadHeader {
        reason: excerpt_within(error.to_string(), EXCERPT),
        excerpt: String::from_utf8_lossy(&text[..text.len().min(EXCERPT)]).into_owned(),
    })?;
    let payload = read_chunks(from, length).await?;
    Ok(Frame { header, payload })
}

async fn read_chunks(from: &mut (impl AsyncRead + Unpin), length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity((length as usize).min(CHUNK));
    let read = from.take(length).read_to_end(&mut bytes).await?;
    if (read as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_protocol::{FromRank, ToRank};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn a_frame_survives_the_round_trip() {
        let mut wire = Vec::new();
        block_on(write_frame(&mut wire, &ToRank::Finish, &[b"abc", b"de"])).unwrap();
        let frame: Frame<ToRank> = block_on(read_frame(&mut wire.as_slice())).unwrap();
        assert_eq!(frame.header, ToRank::Finish);
        assert_eq!(frame.payload, b"abcde");
    }

    #[test]
    fn closing_between_frames_is_told_from_closing_inside_one() {
        let nothing: Result<Frame<FromRank>, _> = block_on(read_frame(&mut &b""[..]));
        assert!(matches!(nothing, Err(FrameError::Closed)));
        let inside: Result<Frame<FromRank>, _> = block_on(read_frame(&mut &b"\x05\0"[..]));
        assert!(matches!(inside, Err(FrameError::Io(_))));
    }

    #[test]
    fn garbage_is_refused_before_it_is_allocated() {
        let http: Result<Frame<FromRank>, _> =
            block_on(read_frame(&mut &b"GET / HTTP/1.1\r\n"[..]));
        assert!(matches!(http, Err(FrameError::TooLong { .. })));
        let mut wire = Vec::new();
        block_on(write_frame(&mut wire, &"not a header", &[])).unwrap();
        let header: Result<Frame<FromRank>, _> = block_on(read_frame(&mut wire.as_slice()));
        assert!(matches!(header, Err(FrameError::BadHeader { .. })));
    }
}
