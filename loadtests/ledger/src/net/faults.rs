//! What may happen to a connection.

use std::time::Duration;

use crate::random::Random;

/// The fault of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Both directions are closed after this time.
    Cut(Duration),
    /// The client gets a reset.
    Reset(Duration),
    /// What goes to the client ends in good order, in the middle of it; the rest stays open.
    HalfClose(Duration),
    /// Every piece to the client is this late.
    Latency(Duration),
    /// Only so many bytes at a time go to the client.
    Drip(usize),
}

/// How likely faults are, in percent of the connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    pub(crate) faults: u64,
}

impl Weather {
    /// The fault of the connection of that number.
    #[must_use]
    pub(crate) fn of(&self, connection: u64) -> Option<Fault> {
        let mut random = Random::of(self.seed, connection);
        if !random.percent(self.faults) {
            return None;
        }
        let after = Duration::from_millis(random.between(20, 2500));
        Some(match random.between(0, 5) {
            0 => Fault::Cut(after),
            1 => Fault::Reset(after),
            2 => Fault::HalfClose(after),
            3 => Fault::Latency(Duration::from_millis(random.between(5, 150))),
            _ => Fault::Drip(usize::try_from(random.between(16, 200)).unwrap_or(16)),
        })
    }
}

impl Fault {
    /// As the table names it.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cut(_) => "cut",
            Self::Reset(_) => "reset",
            Self::HalfClose(_) => "half-close",
            Self::Latency(_) => "latency",
            Self::Drip(_) => "drip",
        }
    }

    /// When it strikes, if it does once.
    pub(super) fn after(self) -> Option<Duration> {
        match self {
            Self::Cut(after) | Self::Reset(after) | Self::HalfClose(after) => Some(after),
            Self::Latency(_) | Self::Drip(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_weather_and_every_fault_comes() {
        let weather = Weather {
            seed: 3,
            faults: 50,
        };
        let drawn: Vec<_> = (0..400).map(|number| weather.of(number)).collect();
        let again: Vec<_> = (0..400).map(|number| weather.of(number)).collect();
        assert_eq!(drawn, again);
        let fine = drawn.iter().filter(|fault| fault.is_none()).count();
        assert!((120..280).contains(&fine), "{fine}");
        for name in ["cut", "reset", "half-close", "latency", "drip"] {
            let is_it = |fault: &Fault| fault.as_str() == name;
            assert!(drawn.iter().flatten().any(is_it), "{name}");
        }
    }
}
