//! A connection that carries frames both ways, and notices that the other end is gone.
//!
//! An end that has nothing to send sends heartbeats (the frame `beat`). The other end counts as lost when no byte has been
//! received for a number of ticks of this process's own clock. While this process does not run, or is slow to read, no tick
//! passes unread.

use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::world::frame::{Frame, FrameError, read_frame_within, write_frame};
use allranks_protocol::{MAX_NODE_HEADER, MAX_PAYLOAD};

/// Number of frames that wait to be written before [`Outbox::send`] waits too.
const MAX_QUEUED: usize = 256;

/// The times of heartbeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    /// Time without anything to send after which a heartbeat is sent; also the length of a tick.
    pub(super) period: Duration,
    /// Time without a byte received after which the other end is lost; counted in ticks.
    pub(super) timeout: Duration,
}

/// What a connection has received. Nothing follows [`Self::Over`].
#[derive(Debug)]
pub(super) enum Incoming<H> {
    /// A frame.
    Frame(Frame<H>),
    /// The connection has ended; the text says how.
    Over(String),
}

/// Frames to write to a connection, in order.
#[derive(Debug)]
pub(super) struct Outbox<H> {
    queue: mpsc::UnboundedSender<Queued<H>>,
    room: Arc<Semaphore>,
}

/// A frame in the queue: header, payload, and the room that it takes.
type Queued<H> = (H, Vec<u8>, Option<OwnedSemaphorePermit>);

impl<H> Clone for Outbox<H> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            room: Arc::clone(&self.room),
        }
    }
}

impl<H> Outbox<H> {
    /// Queues a frame at once. That the connection has ended is reported by its receiver, not here.
    pub(super) fn push(&self, header: H, payload: Vec<u8>) {
        let _ = self.queue.send((header, payload, None));
    }

    /// Queues a frame as soon as there is room: whoever sends more than the connection carries must wait.
    pub(super) async fn send(&self, header: H, payload: Vec<u8>) {
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let _ = self.queue.send((header, payload, room));
    }
}

/// Starts to read and write frames. The connection is closed when all outboxes are dropped, or [`Incoming::Over`] is received.
pub(super) fn open<S, R>(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    beat: impl Fn() -> S + Send + 'static,
    heartbeat: Heartbeat,
) -> (Outbox<S>, mpsc::UnboundedReceiver<Incoming<R>>)
where
    S: Serialize + Send + Sync + 'static,
    R: DeserializeOwned + Send + 'static,
{
    let (reader, mut writer) = split(stream);
    let (queue, mut queued) = mpsc::unbounded_channel::<Queued<S>>();
    let (sender, incoming) = mpsc::unbounded_channel();
    let writing = async move {
        loop {
            let (header, payload, _room) = match timeout(heartbeat.period, queued.recv()).await {
                Ok(Some(queued)) => queued,
                Ok(None) => break,
                Err(_) => (beat(), Vec::new(), None),
            };
            if write_frame(&mut writer, &header, &[&payload])
                .await
                .is_err()
            {
                // The reader will find out why the connection has ended.
                return std::future::pending().await;
            }
        }
        let _ = writer.shutdown().await;
    };
    tokio::spawn(async move {
        tokio::select! {
            () = receive(reader, sender, heartbeat) => {}
            () = writing => {}
        }
    });
    let room = Arc::new(Semaphore::new(MAX_QUEUED));
    (Outbox { queue, room }, incoming)
}

/// Passes on the frames that come, until the connection ends or nothing comes for [`Heartbeat::timeout`].
async fn receive<R: DeserializeOwned>(
    reader: impl AsyncRead + Unpin,
    to: mpsc::UnboundedSender<Incoming<R>>,
    heartbeat: Heartbeat,
) {
    let heard = Arc::new(AtomicBool::new(false));
    let mut reader = BufReader::new(NotingReader {
        reader,
        heard: Arc::clone(&heard),
    });
    let ticks = heartbeat
        .timeout
        .as_nanos()
        .div_ceil(heartbeat.period.as_nanos().max(1));
    loop {
        let frame = {
            let mut reading = pin!(read_frame_within::<R>(
                &mut reader,
                MAX_NODE_HEADER,
                MAX_PAYLOAD
            ));
            let mut silent = 0;
            loop {
                tokio::select! {
                    biased;
                    frame = &mut reading => break frame,
                    () = sleep(heartbeat.period) => {}
                }
                silent = match heard.swap(false, Ordering::Relaxed) {
                    true => 0,
                    false => silent + 1,
                };
                if silent >= ticks {
                    let seconds = heartbeat.timeout.as_secs_f64();
                    break Err(FrameError::AtNode(format!("nothing came for {seconds} s")));
                }
            }
        };
        let (last, incoming) = match frame {
            Ok(frame) => (false, Incoming::Frame(frame)),
            // A peer that dies closes the connection without ending the TLS session.
            Err(FrameError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                (true, Incoming::Over(FrameError::Closed.to_string()))
            }
            Err(error) => (true, Incoming::Over(error.to_string())),
        };
        if to.send(incoming).is_err() || last {
            return;
        }
    }
}

/// A reader that sets `heard` when bytes have come.
struct NotingReader<R> {
    reader: R,
    heard: Arc<AtomicBool>,
}

impl<R: AsyncRead + Unpin> AsyncRead for NotingReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.heard.store(true, Ordering::Relaxed);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PULSE: Heartbeat = Heartbeat {
        period: Duration::from_millis(20),
        timeout: Duration::from_millis(200),
    };

    #[tokio::test]
    async fn a_silent_end_is_lost_and_one_that_beats_is_not() {
        let (one, two) = tokio::io::duplex(1 << 10);
        let (_to_two, mut at_one) = open::<u32, u32>(one, || 1, PULSE);
        let (to_one, mut at_two) = open::<u32, u32>(two, || 2, PULSE);
        to_one.push(7, b"abc".to_vec());
        let Some(Incoming::Frame(frame)) = at_one.recv().await else {
            panic!("the frame did not come");
        };
        assert_eq!((frame.header, frame.payload.as_slice()), (7, &b"abc"[..]));
        // Each says nothing but beats for much longer than the patience.
        for _ in 0..30 {
            assert!(matches!(at_two.recv().await, Some(Incoming::Frame(_))));
            assert!(matches!(at_one.recv().await, Some(Incoming::Frame(_))));
        }
        let (_silent, three) = tokio::io::duplex(1 << 10);
        let (_to, mut at_three) = open::<u32, u32>(three, || 3, PULSE);
        let Some(Incoming::Over(why)) = at_three.recv().await else {
            panic!("it is not lost");
        };
        assert_eq!(why, "nothing came for 0.2 s");
    }

    #[tokio::test]
    async fn the_other_end_sees_that_the_last_outbox_is_dropped() {
        let (one, two) = tokio::io::duplex(1 << 10);
        let (to_two, _at_one) = open::<u32, u32>(one, || 1, PULSE);
        let (_to_one, mut at_two) = open::<u32, u32>(two, || 2, PULSE);
        to_two.push(5, Vec::new());
        drop(to_two);
        assert!(matches!(at_two.recv().await, Some(Incoming::Frame(frame)) if frame.header == 5));
        loop {
            match at_two.recv().await {
                Some(Incoming::Frame(_)) => {}
                Some(Incoming::Over(why)) => break assert_eq!(why, "connection closed"),
                None => panic!("it is not told"),
            }
        }
    }
}
