//! The scripts: everything that is done at the store, each whole or not at all.

use vestibule_store::redis::Script;

macro_rules! scripts {
    ($($(#[$what:meta])* $name:ident = $word:literal [$($file:literal),+];)+) => {
        $($(#[$what])* pub(super) static $name: Script =
            Script::new($word, concat!($(include_str!(concat!("lua/", $file, ".lua"))),+));)+
    };
}

scripts! {
    /// Compare and append.
    APPEND = "append" ["append"];
    /// A stream and its events.
    LOAD = "load" ["record", "load"];
    /// The same, taken over.
    ACQUIRE = "acquire" ["record", "acquire"];
    /// A reader of a POST stream comes.
    READ = "read" ["read"];
    /// It is gone.
    UNREAD = "unread" ["unread"];
    /// A standalone reader comes.
    ENLIST = "enlist" ["enlist"];
    /// It is gone.
    LEAVE = "leave" ["leave"];
    /// Something waits for a standalone reader.
    PUSH = "push" ["waiting", "push"];
    /// What waits.
    LOOK = "look" ["waiting", "look"];
    /// The session is over.
    FORGET = "forget" ["waiting", "forget"];
    /// Streams of a session that is over.
    SWEEP = "sweep" ["sweep"];
    /// A stream is not remembered any more.
    REMOVE = "remove" ["remove"];
    /// Tells another replica something.
    HINT = "hint" ["hint"];
}

#[cfg(test)]
mod tests {
    use vestibule_store::ReplicaId;
    use vestibule_store::redis::channel_of;

    /// Scripts publish to replicas they learn of from what is stored.
    #[test]
    fn scripts_know_the_channels_of_replicas() {
        let replica = ReplicaId::random();
        let channel = format!("vestibule:r:{replica}");
        assert_eq!(channel_of(&replica), channel.as_bytes());
    }
}
