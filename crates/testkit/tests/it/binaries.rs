//! Finding the testkit's programs the way tests of other packages do.

use std::path::Path;

use vestibule_testkit::binaries::binary;

#[test]
fn a_program_is_built_beside_the_test_that_needs_it() {
    let built = binary("rmcp-client").unwrap().canonicalize().unwrap();
    assert_eq!(
        built,
        Path::new(env!("CARGO_BIN_EXE_rmcp-client"))
            .canonicalize()
            .unwrap()
    );
}

#[test]
fn an_unknown_program_is_an_error() {
    assert!(binary("no-such-program").is_err());
}
