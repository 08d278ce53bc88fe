//! The histogram buckets, in seconds. Fixed, because dashboards and alerts compare with them.

/// Durations of requests and of upstream requests.
pub(crate) const DURATION: [f64; 12] = [
    0.005, 0.010, 0.025, 0.050, 0.100, 0.250, 0.500, 1.0, 2.5, 10.0, 60.0, 600.0,
];

/// Time spent in the gateway itself.
pub(crate) const OVERHEAD: [f64; 10] = [
    0.000_025, 0.000_050, 0.000_100, 0.000_250, 0.000_500, 0.001, 0.0025, 0.005, 0.025, 0.100,
];
