//! Methods that choose a quantile between two elements.

/// How a quantile that lies between two elements is computed: NumPy's `method`, or the method of NumPy's `median`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuantileMethod {
    /// Linear interpolation between the two elements around the quantile.
    Linear,
    /// The lower of the two elements around the quantile.
    Lower,
    /// The higher of the two elements around the quantile.
    Higher,
    /// The element nearer to the quantile; halfway between two elements, the one with the even index in sorted order.
    Nearest,
    /// The middle between the two elements around the quantile.
    Midpoint,
    /// Method 1 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996).
    InvertedCdf,
    /// Method 2 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    AveragedInvertedCdf,
    /// Method 3 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    ClosestObservation,
    /// Method 4 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    InterpolatedInvertedCdf,
    /// Method 5 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    Hazen,
    /// Method 6 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    Weibull,
    /// Method 8 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    MedianUnbiased,
    /// Method 9 of Hyndman and Fan (1996), who compare nine definitions of quantiles.
    NormalUnbiased,
    /// The mean of the two middle elements of all, whatever the probability is.
    Median,
}

/// The ranks of the two elements around a quantile, and the fraction (0 to 1) of the way from the first to the second.
pub(super) type Places = (u64, u64, f64);

impl QuantileMethod {
    const NAMES: &'static [(QuantileMethod, &'static str)] = &[
        (QuantileMethod::Linear, "linear"),
        (QuantileMethod::Lower, "lower"),
        (QuantileMethod::Higher, "higher"),
        (QuantileMethod::Nearest, "nearest"),
        (QuantileMethod::Midpoint, "midpoint"),
        (QuantileMethod::InvertedCdf, "inverted_cdf"),
        (QuantileMethod::AveragedInvertedCdf, "averaged_inverted_cdf"),
        (QuantileMethod::ClosestObservation, "closest_observation"),
        (QuantileMethod::InterpolatedInvertedCdf, "interpolated_inverted_cdf"),
        (QuantileMethod::Hazen, "hazen"),
        (QuantileMethod::Weibull, "weibull"),
        (QuantileMethod::MedianUnbiased, "median_unbiased"),
        (QuantileMethod::NormalUnbiased, "normal_unbiased"),
        (QuantileMethod::Median, "median"),
    ];

    /// Returns the method with one of NumPy's names, or `median`.
    pub fn named(name: &str) -> Option<QuantileMethod> {
        Self::NAMES.iter().find(|(_, own)| *own == name).map(|(method, _)| *method)
    }

    /// Returns the names of all methods.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(_, name)| *name)
    }

    /// Whether every quantile is one of the elements, so that none is interpolated.
    pub(super) fn is_discrete(self) -> bool {
        use QuantileMethod::{ClosestObservation, Higher, InvertedCdf, Lower, Nearest};
        matches!(self, Lower | Higher | Nearest | InvertedCdf | ClosestObservation)
    }

    /// Returns where the quantile `q` of `n` sorted elements (at least one) lies, computed as in NumPy.
    pub(super) fn places(self, n: u64, q: f64) -> Places {
        use QuantileMethod::{
            AveragedInvertedCdf, ClosestObservation, Hazen, Higher, InterpolatedInvertedCdf, InvertedCdf, Linear,
            Lower, Median, MedianUnbiased, Midpoint, Nearest, NormalUnbiased, Weibull,
        };
        let (last, count) = ((n - 1) as f64, n as f64);
        let exactly = |place: f64| (place.clamp(0.0, last) as u64, place.clamp(0.0, last) as u64, 0.0);
        let between = |at: f64, gamma: f64| match at {
            at if at >= last => (n - 1, n - 1, 0.0),
            at if at < 0.0 => (0, 0, 0.0),
            at => (at.floor() as u64, at.floor() as u64 + 1, gamma),
        };
        let continuous = |alpha: f64, beta: f64| {
            let at = count * q + (alpha + q * (1.0 - alpha - beta)) - 1.0;
            between(at, at - at.floor())
        };
        let even = last * q;
        match self {
            Linear => between(even, even - even.floor()),
            Lower => exactly(even.floor()),
            Higher => exactly(even.ceil()),
            Nearest => exactly(even.round_ties_even()),
            Midpoint => {
                let at = 0.5 * (even.floor() + even.ceil());
                between(at, if at % 1.0 == 0.0 { 0.0 } else { 0.5 })
            }
            InvertedCdf => exactly((count * q - 1.0).ceil()),
            AveragedInvertedCdf => {
                let at = count * q - 1.0;
                between(at, if at == at.floor() { 0.5 } else { 1.0 })
            }
            ClosestObservation => {
                let at = count * q - 1.0 - 0.5;
                let is_odd = at == at.floor() && at.floor().rem_euclid(2.0) == 1.0;
                exactly(if is_odd { at } else { at.floor() + 1.0 })
            }
            InterpolatedInvertedCdf => continuous(0.0, 1.0),
            Hazen => continuous(0.5, 0.5),
            Weibull => continuous(0.0, 0.0),
            MedianUnbiased => continuous(1.0 / 3.0, 1.0 / 3.0),
            NormalUnbiased => continuous(3.0 / 8.0, 3.0 / 8.0),
            Median => ((n - 1) / 2, n / 2, 0.5),
        }
    }
}
