//! Who may have written the operator's file: a file that starts programs must not be writable by
//! anybody but root and the gateway's own user.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Owner and mode of a file, judged against the user the gateway runs as.
pub(crate) fn verdict(file_uid: u32, own_uid: u32, mode: u32) -> Result<(), &'static str> {
    if file_uid != 0 && file_uid != own_uid {
        return Err("the file must be owned by root or by the gateway's user");
    }
    if mode & 0o022 != 0 {
        return Err("the file must not be writable by group or others (chmod go-w)");
    }
    Ok(())
}

/// The verdict on a file at hand.
pub(crate) fn check(metadata: &Metadata) -> Result<(), &'static str> {
    let own_uid = rustix::process::geteuid().as_raw();
    verdict(metadata.uid(), own_uid, metadata.mode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_own_user_may_own_and_nobody_else_write() {
        assert!(verdict(0, 1000, 0o100_644).is_ok());
        assert!(verdict(1000, 1000, 0o100_600).is_ok());
        assert!(verdict(1001, 1000, 0o100_600).is_err());
        assert!(verdict(1000, 1000, 0o100_664).is_err());
        assert!(verdict(0, 0, 0o100_646).is_err());
    }
}
