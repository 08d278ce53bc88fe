//! What every log must do, over a server.

use super::make;

crate::suite::tests!(make);
