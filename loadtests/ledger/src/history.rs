//! What happened, as each side wrote it down: the upstream's ledger, the clients' records, and the
//! faults. Nothing here judges; that is the verdict's.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Microseconds since 1970: all sides run on one machine, so their times can be compared.
pub(crate) type Micros = u64;

/// The time now.
#[must_use]
pub(crate) fn now() -> Micros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
}

/// From one moment to another; nothing when it is the earlier one.
#[must_use]
pub(crate) fn span(from: Micros, to: Micros) -> Duration {
    Duration::from_micros(to.saturating_sub(from))
}

/// What kind of upstream a call runs on, and so what may become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Its streams have ids and can be resumed: every call survives.
    Resumable,
    /// Its streams cannot be resumed: a call whose owner died has an unknown outcome.
    Plain,
    /// Resumable, and it asks its client a question in the middle of every call.
    Asking,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Resumable, Self::Plain, Self::Asking];

    /// Its name, as it stands in addresses.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Resumable => "resumable",
            Self::Plain => "plain",
            Self::Asking => "asking",
        }
    }

    /// Whether its calls go on when their owner dies.
    #[must_use]
    pub(crate) fn survives(self) -> bool {
        match self {
            Self::Resumable | Self::Asking => true,
            Self::Plain => false,
        }
    }
}

/// A line of the upstream's ledger. It is on disk before what it tells is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(crate) enum Entry {
    /// A tool call arrived; `key` is the client's own name for it.
    Called { at: Micros, key: String },
    /// A numbered event of a call, from 1.
    Emitted {
        at: Micros,
        key: String,
        number: u64,
    },
    /// The result of a call.
    Ended { at: Micros, key: String },
    /// A call was cancelled.
    Cancelled { at: Micros, key: String },
    /// A question to the client in the middle of a call.
    Asked {
        at: Micros,
        key: String,
        question: String,
    },
    /// An answer to a question arrived.
    Answered {
        at: Micros,
        question: String,
        content: String,
    },
    /// A numbered notification for whoever watches under this key, and the GET stream that it went
    /// out on, if there was one.
    Noticed {
        at: Micros,
        key: String,
        number: u64,
        stream: Option<String>,
    },
}

/// One life of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seat {
    /// Which replica.
    pub(crate) replica: usize,
    /// How often it has been started before.
    pub(crate) life: u32,
}

/// A message that a client dispatched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) at: Micros,
    /// The event's id, if it had one.
    pub(crate) id: Option<String>,
    pub(crate) what: What,
}

/// What the message was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// A numbered event of the call.
    Event(u64),
    /// A question, by the upstream's name for it.
    Question(String),
    /// The answer to the call.
    End(End),
    /// The gateway's word that a question, by the gateway's id for it, need not be answered any more.
    Withdrawn(u64),
    /// Anything that has no business on this stream.
    Foreign(String),
}

/// How a call was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The upstream's own result.
    Result,
    /// An error of the gateway or of the upstream.
    Error { code: i64, reason: String },
}

/// How a client's dealing with a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// It was answered.
    Answered,
    /// The connection broke before an id had come: nobody can say what became of it.
    BrokenBeforeId,
    /// It was not accepted: no connection, or a status that says so.
    Refused(u16),
    /// A resume of its stream was refused.
    ResumeRefused(u16),
    /// It was cancelled, and so nothing more comes.
    Cancelled,
    /// Nothing came any more.
    GaveUp,
}

/// A resume that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resumed {
    /// When the connection before it broke.
    pub(crate) broke: Micros,
    /// When the answer's head came.
    pub(crate) answered: Micros,
    pub(crate) status: u16,
    /// Who answered.
    pub(crate) reader: Option<Seat>,
}

/// A call as its client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallRecord {
    pub(crate) key: String,
    pub(crate) kind: Kind,
    /// The client session, under the harness's own name.
    pub(crate) session: usize,
    pub(crate) started: Micros,
    /// Who took the request.
    pub(crate) owner: Option<Seat>,
    pub(crate) heard: Vec<Heard>,
    pub(crate) resumed: Vec<Resumed>,
    pub(crate) close: Close,
    pub(crate) closed: Micros,
    /// What a resume behind the answer brought: a status, and how many more messages.
    pub(crate) afterwards: Option<(u16, usize)>,
}

/// A notification that a client dispatched on one of its GET streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewsHeard {
    pub(crate) at: Micros,
    /// Which of the session's GET streams.
    pub(crate) stream: usize,
    pub(crate) id: Option<String>,
    pub(crate) what: News,
}

/// What it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The upstream's notification of that number.
    Number(u64),
    /// "Look again": makes good whatever was lost before it.
    Repair,
    /// Anything that has no business there.
    Foreign(String),
}

/// All GET streams of one session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NewsRecord {
    pub(crate) key: String,
    pub(crate) session: usize,
    pub(crate) heard: Vec<NewsHeard>,
    pub(crate) resumed: Vec<Resumed>,
    /// Resumes with an id of this stream that were refused.
    pub(crate) refused: Vec<u16>,
    /// What the upstream sent later is not expected any more.
    pub(crate) until: Micros,
}

/// A question that a client answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerRecord {
    pub(crate) question: String,
    /// The session that was asked, and the gateway's id.
    pub(crate) session: usize,
    pub(crate) id: u64,
    pub(crate) content: String,
    /// When the gateway took it.
    pub(crate) taken: Option<Micros>,
}

/// A cancellation of a call that the gateway took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CancelRecord {
    pub(crate) key: String,
    pub(crate) taken: Micros,
}

/// An attempt with an id, a session or both that are not the client's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forgery {
    pub(crate) what: &'static str,
    pub(crate) status: u16,
    /// Messages it was shown.
    pub(crate) shown: usize,
}

/// What was done to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Blow {
    /// `kill -9` of a replica that holds upstream legs.
    KillOwner,
    /// `kill -9` of a replica that holds client connections.
    KillReader,
    /// SIGSTOP, later SIGCONT.
    Stop,
    /// `kill -9` of the store, which comes back with everything it acknowledged.
    KillStore,
    /// `kill -9` of the store's primary while its replica lags: a tail of it is lost.
    Failover,
    /// Slots of the cluster with all their keys move to another node.
    MoveSlots,
    /// SIGTERM, and a new process.
    Roll,
}

impl Blow {
    /// Whether a replica is gone by it, with all that it alone knew.
    pub(crate) fn kills_a_replica(self) -> bool {
        matches!(self, Self::KillOwner | Self::KillReader)
    }
}

/// One blow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: Micros,
    /// When whatever it hit was back.
    pub(crate) until: Micros,
    pub(crate) blow: Blow,
    /// Whom it hit, when that was a replica.
    pub(crate) seat: Option<Seat>,
    /// Calls that ran or were read there.
    pub(crate) open_calls: usize,
}

/// A whole run.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) ledger: Vec<Entry>,
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) news: Vec<NewsRecord>,
    pub(crate) answers: Vec<AnswerRecord>,
    pub(crate) cancels: Vec<CancelRecord>,
    pub(crate) forgeries: Vec<Forgery>,
    pub(crate) faults: Vec<Fault>,
    /// Sessions that were told they do not exist, each with the status and the request.
    pub(crate) lost_sessions: Vec<String>,
    /// Faults of connections, by name.
    pub(crate) wire: BTreeMap<&'static str, u64>,
    /// Connections that found no replica.
    pub(crate) unserved: u64,
}
