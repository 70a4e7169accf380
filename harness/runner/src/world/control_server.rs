//! The control server: the one socket that all ranks of this process connect to. A connection says hello with its
//! world's token and is passed to that world. One that does not is dropped, and so is one of another user, without
//! being read.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::frame::{Frame, read_frame_within};
use allranks_model::names::Rank;
use allranks_protocol::{FromRank, FromZygote, Hello};

/// The shortest time after which a connection without a hello is dropped: a rank may connect before it imports torch.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest first frame, in bytes; it has no payload.
const MAX_FIRST_FRAME: usize = 64 << 10;
/// Number of connections without a hello at a time; further ones are accepted only when one of these is done.
const MAX_WITHOUT_HELLO: usize = 1024;

/// The listening socket, and the worlds and zygotes whose connections are expected.
#[derive(Clone, Debug)]
pub struct ControlServer {
    address: String,
    expected: Arc<Mutex<HashMap<String, Waiting>>>,
    patience: Duration,
    /// Why no connection can be accepted; none if that has not lasted for [`REFUSAL_LIMIT`].
    accept_error: watch::Sender<Option<String>>,
}

/// The time for which the system must refuse connections before the worlds that wait for one are notified.
const REFUSAL_LIMIT: Duration = Duration::from_secs(3);
/// Time from one attempt to accept a connection to the next, where the system refuses.
const ACCEPT_RETRY_PERIOD: Duration = Duration::from_millis(50);

#[derive(Debug)]
enum Waiting {
    World(mpsc::UnboundedSender<Arrival>),
    Zygote(mpsc::UnboundedSender<(FromZygote, UnixStream)>),
}

/// A connection that said hello with the token of a rank of this world.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The rank that the token names.
    pub(super) rank: Rank,
    pub(super) hello: Hello,
    pub(super) stream: UnixStream,
}

/// A token that the server expects of connections. Dropping it makes the server forget the token.
#[derive(Debug)]
pub struct ExpectedToken {
    control_server: ControlServer,
    /// The secret of this world, or of this zygote.
    pub token: String,
}

impl ExpectedToken {
    /// Returns why no connection can be accepted, as soon as the system has refused to for some seconds.
    pub async fn accept_error(&self) -> String {
        self.control_server.accept_error().await
    }

    /// Returns the token of one rank, which the rank sends in its hello. It names the rank, so no rank can pass for
    /// another.
    #[must_use]
    pub fn rank_token(&self, rank: Rank) -> String {
        format!("{}.{rank}", self.token)
    }
}

/// Splits a rank's token into the world's token and the rank; none if it has no rank.
fn split(rank_token: &str) -> Option<(&str, Rank)> {
    let (token, rank) = rank_token.split_once('.')?;
    Some((token, Rank(rank.parse().ok()?)))
}

impl Drop for ExpectedToken {
    fn drop(&mut self) {
        self.control_server.expected().remove(&self.token);
    }
}

impl ControlServer {
    /// Binds the socket and accepts connections until the runtime ends. On Linux its name is abstract: there is no file
    /// that could be left behind. A connection must say hello within `patience`.
    ///
    /// # Errors
    /// Fails if the socket cannot be bound.
    pub fn bind(patience: Duration) -> io::Result<Self> {
        Self::bind_for(patience, MAX_WITHOUT_HELLO)
    }

    fn bind_for(patience: Duration, unauthenticated: usize) -> io::Result<Self> {
        let name = format!("allranks-{}-{}", std::process::id(), token()?);
        let (listener, address) = listen(&name)?;
        let control_server = Self {
            address,
            expected: Arc::default(),
            patience,
            accept_error: watch::Sender::default(),
        };
        let accepting = control_server.clone();
        let unauthenticated = Arc::new(Semaphore::new(unauthenticated));
        tokio::spawn(async move {
            let mut refused: Option<Instant> = None;
            while let Ok(place) = Arc::clone(&unauthenticated).acquire_owned().await {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        if refused.take().is_some() {
                            accepting.accept_error.send_replace(None);
                        }
                        let connecting = accepting.clone().connect(stream);
                        tokio::spawn(async move {
                            connecting.await;
                            drop(place);
                        });
                    }
                    // For instance no file descriptors are left: other connections will close some.
                    Err(error) => {
                        if refused.get_or_insert_with(Instant::now).elapsed() >= REFUSAL_LIMIT {
                            accepting.accept_error.send_replace(Some(error.to_string()));
                        }
                        tokio::time::sleep(ACCEPT_RETRY_PERIOD).await;
                    }
                }
            }
        });
        Ok(control_server)
    }

    /// Returns the address that ranks find in `ALLRANKS_CONTROL`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns why no connection can be accepted, as soon as the system has refused to for some seconds.
    pub async fn accept_error(&self) -> String {
        let mut accept_error = self.accept_error.subscribe();
        let why = accept_error.wait_for(Option::is_some).await;
        let why = why.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The server is gone, so nothing is accepted any more.
            None => std::future::pending().await,
        }
    }

    /// Expects the ranks of a world; their connections come out of the receiver.
    pub fn expect_world(&self) -> io::Result<(ExpectedToken, mpsc::UnboundedReceiver<Arrival>)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok((self.expect(Waiting::World(sender))?, receiver))
    }

    /// Expects a zygote; its connection comes out of the receiver with its hello.
    pub fn expect_zygote(
        &self,
    ) -> io::Result<(
        ExpectedToken,
        mpsc::UnboundedReceiver<(FromZygote, UnixStream)>,
    )> {
        let (sender, receiver) = mpsc::unbounded_channel();
        Ok((self.expect(Waiting::Zygote(sender))?, receiver))
    }

    fn expect(&self, waiting: Waiting) -> io::Result<ExpectedToken> {
        let token = token()?;
        self.expected().insert(token.clone(), waiting);
        Ok(ExpectedToken {
            control_server: self.clone(),
            token,
        })
    }

    fn expected(&self) -> std::sync::MutexGuard<'_, HashMap<String, Waiting>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(self, mut stream: UnixStream) {
        let Ok(peer) = stream.peer_cred() else {
            return;
        };
        if !is_trusted(peer.uid()) {
            return;
        }
        let reading = read_frame_within::<FirstFrame>(&mut stream, MAX_FIRST_FRAME, 0);
        let hello = tokio::time::timeout(self.patience, reading).await;
        let Ok(Ok(Frame { header, .. })) = hello else {
            return;
        };
        let expected = self.expected();
        match header {
            FirstFrame::Rank(FromRank::Hello(mut hello)) => {
                // The process at the other end is the one that is signalled and looked at, whatever pid its hello
                // names.
                if let Some(pid) = peer.pid().filter(|pid| *pid > 0) {
                    hello.pid = pid.cast_unsigned();
                }
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

/// Returns true if a user's processes may be ranks: those of this process's user, and of root.
fn is_trusted(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || user == 0
}

/// The frames that a connection may start with.
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

/// Returns 128 random bits in hexadecimal.
pub(super) fn token() -> io::Result<String> {
    use std::fmt::Write;
    use std::io::Read;

    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream as Peer};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// Longer than any test waits.
    const LONG: Duration = Duration::from_secs(600);

    fn within<T>(body: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        runtime.unwrap().block_on(body)
    }

    fn name(server: &ControlServer) -> &str {
        server.address().strip_prefix("unix:@").unwrap()
    }

    fn dial(server: &ControlServer) -> Peer {
        let address = SocketAddr::from_abstract_name(name(server)).unwrap();
        let peer = Peer::connect_addr(&address).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        peer
    }

    fn frame(header: &str, payload: u64) -> Vec<u8> {
        let mut bytes = (header.len() as u32).to_le_bytes().to_vec();
        bytes.extend(payload.to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes
    }

    fn hello(token: &str) -> String {
        format!(
            r#"{{"frame":"hello","version":1,"token":"{token}","rank":0,"pid":1,"driver":"d","torch":"2","clock":"c","calls":[]}}"#
        )
    }

    /// Returns true if the server closes the connection. Bytes that were not read make that a reset.
    fn is_closed(mut peer: &Peer) -> bool {
        !matches!(peer.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    #[test]
    fn a_hello_comes_with_the_process_that_sent_it() {
        within(async {
            let server = ControlServer::bind(LONG).unwrap();
            let (slot, mut arrivals) = server.expect_world().unwrap();
            let mut peer = dial(&server);
            peer.write_all(&frame(&hello(&slot.rank_token(Rank(0))), 0))
                .unwrap();
            let arrival = arrivals.recv().await.unwrap();
            assert_eq!(arrival.hello.pid, std::process::id(), "it said 1");
        });
    }

    #[test]
    fn an_unauthenticated_peer_is_not_heard_for_long_nor_at_length() {
        within(async {
            let server = ControlServer::bind(LONG).unwrap();
            let (slot, mut arrivals) = server.expect_world().unwrap();
            let hello = hello(&slot.rank_token(Rank(0)));
            for (header, payload) in [
                (hello.clone(), 1),
                (" ".repeat(MAX_FIRST_FRAME) + &hello, 0),
            ] {
                let mut peer = dial(&server);
                // The server may close before everything is written.
                let _ = peer.write_all(&frame(&header, payload));
                assert!(is_closed(&peer), "{payload}");
            }
            assert!(arrivals.try_recv().is_err());
            let server = ControlServer::bind(Duration::from_millis(300)).unwrap();
            let began = Instant::now();
            assert!(is_closed(&dial(&server)));
            assert!(began.elapsed() >= Duration::from_millis(300));
        });
    }

    #[test]
    fn no_more_unauthenticated_peers_than_so_many_are_heard_at_a_time() {
        within(async {
            let server = ControlServer::bind_for(LONG, 8).unwrap();
            let (slot, mut arrivals) = server.expect_world().unwrap();
            let mut silent: Vec<Peer> = (0..8).map(|_| dial(&server)).collect();
            let mut rank = dial(&server);
            rank.write_all(&frame(&hello(&slot.rank_token(Rank(0))), 0))
                .unwrap();
            let soon = Duration::from_millis(500);
            assert!(tokio::time::timeout(soon, arrivals.recv()).await.is_err());
            // It was only waiting for its turn.
            silent.pop();
            assert_eq!(arrivals.recv().await.unwrap().rank, Rank(0));
        });
    }

    #[test]
    fn another_user_is_not_heard() {
        assert!(!is_trusted(65_534) || rustix::process::geteuid().as_raw() == 65_534);
        within(async {
            let server = ControlServer::bind(LONG).unwrap();
            let (slot, mut arrivals) = server.expect_world().unwrap();
            let script = "import socket, sys\n\
                          peer = socket.socket(socket.AF_UNIX)\n\
                          peer.connect('\\0' + sys.argv[1])\n\
                          peer.sendall(bytes.fromhex(sys.argv[2]))\n\
                          print(len(peer.recv(1)))";
            let bytes = frame(&hello(&slot.rank_token(Rank(0))), 0);
            let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", script, name(&server), &hexadecimal]);
            // Without the right to become another user nothing more can be tried.
            let Ok(ran) = command.uid(65_534).output() else {
                return;
            };
            assert!(arrivals.try_recv().is_err(), "{ran:?}");
        });
    }
}
