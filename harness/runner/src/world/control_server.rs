//! The switchboard: the one socket all ranks of this process dial. A connection says hello with its world's token
//! and is passed to that world; one that does not is dropped.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::Arrival;
use super::frame::{Frame, read_frame};
use allranks_model::names::Rank;
use allranks_protocol::{FromRank, FromZygote};

/// How long a stranger may hold a connection without a word.
const PATIENCE: Duration = Duration::from_secs(60);

/// The listener and who waits for whom.
#[derive(Clone, Debug)]
pub struct ControlServer {
    address: String,
    expected: Arc<Mutex<HashMap<String, Waiting>>>,
}

#[derive(Debug)]
enum Waiting {
    World(mpsc::UnboundedSender<Arrival>),
    Zygote(mpsc::UnboundedSender<(FromZygote, UnixStream)>),
}

/// A place on the switchboard; dropping it makes the token unknown again.
#[derive(Debug)]
pub struct WorldSlot {
    switchboard: ControlServer,
    /// The secret of this world, or of this zygote.
    pub token: String,
}

impl WorldSlot {
    /// The secret a rank says hello with; it says which rank it is, so none can pass for another.
    #[must_use]
    pub fn rank_token(&self, rank: Rank) -> String {
        format!("{}.{rank}", self.token)
    }
}

/// The world's token and the rank of a rank's token.
fn split(rank_token: &str) -> Option<(&str, Rank)> {
    let (token, rank) = rank_token.split_once('.')?;
    Some((token, Rank(rank.parse().ok()?)))
}

impl Drop for WorldSlot {
    fn drop(&mut self) {
        self.switchboard.expected().remove(&self.token);
    }
}

impl ControlServer {
    /// Binds the socket and accepts until the runtime ends. On Linux its name is abstract: it has no file and so
    /// leaves none behind, however the process ends.
    ///
    /// # Errors
    /// Fails if the socket cannot be bound.
    pub fn bind() -> io::Result<Self> {
        let name = format!("allranks-{}-{}", std::process::id(), token()?);
        let (listener, address) = listen(&name)?;
        let switchboard = Self {
            address,
            expected: Arc::default(),
        };
        let accepting = switchboard.clone();
        tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(accepting.clone().connect(stream));
                    }
                    // Out of file descriptors, say: others will close some.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        Ok(switchboard)
    }

    /// What ranks find in `ALLRANKS_CONTROL`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A place for a world; its ranks' connections come out of the receiver.
    pub fn expect_world(&self) -> io::Result<(WorldSlot, mpsc::UnboundedReceiver<Arrival>)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok((self.expect(Waiting::World(sender))?, receiver))
    }

    /// A place for a zygote; its connection comes out of the receiver with its hello.
    pub fn expect_zygote(
        &self,
    ) -> io::Result<(WorldSlot, mpsc::UnboundedReceiver<(FromZygote, UnixStream)>)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok((self.expect(Waiting::Zygote(sender))?, receiver))
    }

    fn expect(&self, waiting: Waiting) -> io::Result<WorldSlot> {
        let token = token()?;
        self.expected().insert(token.clone(), waiting);
        Ok(WorldSlot {
            switchboard: self.clone(),
            token,
        })
    }

    fn expected(&self) -> std::sync::MutexGuard<'_, HashMap<String, Waiting>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(self, mut stream: UnixStream) {
        let hello = tokio::time::timeout(PATIENCE, read_frame::<FirstFrame>(&mut stream)).await;
        let Ok(Ok(Frame { header, .. })) = hello else {
            return;
        };
        let expected = self.expected();
        match header {
            FirstFrame::Rank(FromRank::Hello(hello)) => {
                if let Some((token, rank)) = split(&hello.token)
                    && let Some(Waiting::World(world)) = expected.get(token)
                {
                    let arrival = Arrival {
                        rank,
                        hello,
                        stream,
                    };
                    let _ = world.send(arrival);
                }
            }
            FirstFrame::Zygote(frame @ FromZygote::Zygote { .. }) => {
                if let FromZygote::Zygote { token, .. } = &frame
                    && let Some(Waiting::Zygote(zygote)) = expected.get(token)
                {
                    let _ = zygote.send((frame, stream));
                }
            }
            FirstFrame::Rank(_) | FirstFrame::Zygote(_) => {}
        }
    }
}

/// The two frames a connection may start with.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum FirstFrame {
    Rank(FromRank),
    Zygote(FromZygote),
}

#[cfg(target_os = "linux")]
fn listen(name: &str) -> io::Result<(UnixListener, String)> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener as StdListener};

    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, format!("unix:@{name}")))
}

#[cfg(not(target_os = "linux"))]
fn listen(name: &str) -> io::Result<(UnixListener, String)> {
    let path = std::env::temp_dir().join(format!("{name}.sock"));
    let listener = UnixListener::bind(&path)?;
    Ok((listener, format!("unix:{}", path.display())))
}

/// 128 random bits, in hexadecimal.
fn token() -> io::Result<String> {
    use std::fmt::Write;
    use std::io::Read;

    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
