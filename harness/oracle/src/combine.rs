//! Reduction: the elements of several blocks combined into one result.
//!
//! In: places in payloads. Out: the result's bytes. In the exact mode no step rounds, so the order of the ranks does
//! not matter; an average is taken in `f64` and rounded once. Where steps do round (random values), everything is
//! computed to 106 bits and rounded once. MIN and MAX of a NaN and anything are NaN.

use half::{bf16, f16};

use super::double_double::DoubleDouble;
use super::float8::{E4m3fn, E5m2};
use super::geometry::TensorGeometry;
use super::number::{Bits, Bool, Complex, Integer, Number, Ordered, Real, Ring};
use allranks_model::dtype::{DType, ReduceOp};

/// How contributions become a result.
trait Combine {
    /// Their type.
    type Element: Number;
    /// A result in the making.
    type Sum: Copy;

    /// Returns the contribution of a source, by its number, to begin with.
    fn first(&self, source: usize, element: Self::Element) -> Self::Sum;
    /// Returns a result in the making with the contribution of one more source.
    fn next(&self, sum: Self::Sum, source: usize, element: Self::Element) -> Self::Sum;
    /// Returns the result once all sources have contributed.
    fn result(&self, sum: Self::Sum) -> Self::Element;
}

/// A block to be combined: the payload it lies in, and where.
pub(super) type Source<'a> = (&'a [u8], TensorGeometry);

/// A reduction to compute: operator, element type, contributions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction<'a> {
    /// The element type.
    pub dtype: DType,
    /// The reduce operator.
    pub op: ReduceOp,
    /// What an average is divided by.
    pub divisor: u64,
    /// What `premul_sum` multiplies each source by, in their order.
    pub factors: &'a [f64],
    /// Whether floats are combined to 106 bits before they are rounded.
    pub wide: bool,
}

/// Combines `len` elements of every source and writes the results, dense, to `out`. There is at least one source.
pub(super) fn combine(
    reduction: Reduction<'_>,
    sources: &[Source<'_>],
    len: usize,
    out: &mut [u8],
) {
    let job = &mut Job {
        reduction,
        sources,
        len,
        out,
    };
    match reduction.dtype {
        DType::Float64 => real::<f64>(job),
        DType::Float32 => real::<f32>(job),
        DType::Float16 => real::<f16>(job),
        DType::Bfloat16 => real::<bf16>(job),
        DType::Float8E4m3fn => real::<E4m3fn>(job),
        DType::Float8E5m2 => real::<E5m2>(job),
        DType::Int8 => integer::<i8>(job),
        DType::Int16 => integer::<i16>(job),
        DType::Int32 => integer::<i32>(job),
        DType::Int64 => integer::<i64>(job),
        DType::Uint8 => integer::<u8>(job),
        DType::Uint16 => integer::<u16>(job),
        DType::Uint32 => integer::<u32>(job),
        DType::Uint64 => integer::<u64>(job),
        DType::Bool => match reduction.op {
            ReduceOp::Min => job.run(&Least::<Bool>::default()),
            ReduceOp::Max => job.run(&Greatest::<Bool>::default()),
            _ => bits::<Bool>(job),
        },
        DType::Complex64 => complex::<f32>(job),
        DType::Complex128 => complex::<f64>(job),
    }
}

/// Combines single elements, given as bytes one after another.
pub(super) fn combine_one(reduction: Reduction<'_>, elements: &[u8]) -> u128 {
    let size = reduction.dtype.size();
    let sources: Vec<Source<'_>> = (0..elements.len() / size)
        .map(|index| (elements, TensorGeometry::of_dense(size, index)))
        .collect();
    let mut out = [0; 16];
    combine(reduction, &sources, 1, &mut out[..size]);
    u128::from_le_bytes(out)
}

/// Writes a small integer, exact in every dtype, as an element.
pub(super) fn write_whole(dtype: DType, value: i64, bytes: &mut [u8]) {
    match dtype {
        DType::Float64 => f64::from_i64(value).store(bytes),
        DType::Float32 => f32::from_i64(value).store(bytes),
        DType::Float16 => f16::from_i64(value).store(bytes),
        DType::Bfloat16 => bf16::from_i64(value).store(bytes),
        DType::Float8E4m3fn => E4m3fn::from_i64(value).store(bytes),
        DType::Float8E5m2 => E5m2::from_i64(value).store(bytes),
        DType::Complex64 => Complex::<f32>::from_i64(value).store(bytes),
        DType::Complex128 => Complex::<f64>::from_i64(value).store(bytes),
        DType::Int8 | DType::Uint8 | DType::Bool => (value as u8).store(bytes),
        DType::Int16 | DType::Uint16 => (value as u16).store(bytes),
        DType::Int32 | DType::Uint32 => (value as u32).store(bytes),
        DType::Int64 | DType::Uint64 => (value as u64).store(bytes),
    }
}

struct Job<'a> {
    reduction: Reduction<'a>,
    sources: &'a [Source<'a>],
    len: usize,
    out: &'a mut [u8],
}

/// Elements combined at a time: few enough to stay in the first-level cache.
const TILE: usize = 256;

impl Job<'_> {
    fn run<C: Combine>(&mut self, how: &C) {
        let size = C::Element::SIZE;
        let (first, rest) = self.sources.split_first().expect("at least one source");
        let mut start = 0;
        while start < self.len {
            let count = TILE.min(self.len - start);
            let zero = how.first(0, C::Element::load(&first.0[first.1.range(start)]));
            let sums = &mut [zero; TILE][..count];
            each(first, start, sums, |sum, element| {
                *sum = how.first(0, element);
            });
            for (source, number) in rest.iter().zip(1..) {
                each(source, start, sums, |sum, element| {
                    *sum = how.next(*sum, number, element);
                });
            }
            let out = &mut self.out[start * size..(start + count) * size];
            for (sum, bytes) in sums.iter().zip(out.chunks_exact_mut(size)) {
                how.result(*sum).store(bytes);
            }
            start += count;
        }
    }
}

/// Calls `take` with each sum of a tile and the source's element at the same index; `start` is the index of the first.
#[inline]
fn each<N: Number, S>(source: &Source<'_>, start: usize, sums: &mut [S], take: impl Fn(&mut S, N)) {
    let (payload, place) = source;
    if let Some(bytes) = place.from(start).dense_range(sums.len()) {
        for (sum, bytes) in sums.iter_mut().zip(payload[bytes].chunks_exact(N::SIZE)) {
            take(sum, N::load(bytes));
        }
    } else {
        for (index, sum) in sums.iter_mut().enumerate() {
            take(sum, N::load(&payload[place.range(start + index)]));
        }
    }
}

fn real<R: Real>(job: &mut Job<'_>) {
    let op = job.reduction.op;
    if job.reduction.wide && !matches!(op, ReduceOp::Min | ReduceOp::Max) {
        return job.run(&Whole::<R>::of(job.reduction));
    }
    match op {
        ReduceOp::Avg => {
            let divisor = job.reduction.divisor;
            job.run(&RealAverage::<R>(divisor as f64, Default::default()));
        }
        ReduceOp::Min => job.run(&Least::<R>::default()),
        ReduceOp::Max => job.run(&Greatest::<R>::default()),
        _ => ring::<R>(job),
    }
}

fn integer<I: Integer>(job: &mut Job<'_>) {
    match job.reduction.op {
        ReduceOp::Avg => {
            job.run(&IntegerAverage::<I>(
                job.reduction.divisor,
                Default::default(),
            ));
        }
        ReduceOp::Min => job.run(&Least::<I>::default()),
        ReduceOp::Max => job.run(&Greatest::<I>::default()),
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => bits::<I>(job),
        ReduceOp::Sum | ReduceOp::Product | ReduceOp::PremulSum => ring::<I>(job),
    }
}

fn complex<R: Real>(job: &mut Job<'_>) {
    match job.reduction.op {
        ReduceOp::Product => ring::<Complex<R>>(job),
        _ if job.reduction.wide => job.run(&BothParts(Whole::<R>::of(job.reduction))),
        ReduceOp::Avg => {
            let divisor = job.reduction.divisor;
            job.run(&BothParts(RealAverage::<R>(
                divisor as f64,
                Default::default(),
            )));
        }
        _ => ring::<Complex<R>>(job),
    }
}

fn ring<T: Ring>(job: &mut Job<'_>) {
    match job.reduction.op {
        ReduceOp::Product => job.run(&Product::<T>::default()),
        ReduceOp::PremulSum => job.run(&Total::<T> {
            factors: factors(job.reduction),
        }),
        _ => job.run(&Total::<T> {
            factors: Vec::new(),
        }),
    }
}

fn bits<B: Bits>(job: &mut Job<'_>) {
    match job.reduction.op {
        ReduceOp::Band => job.run(&And::<B>::default()),
        ReduceOp::Bor => job.run(&Or::<B>::default()),
        _ => job.run(&Xor::<B>::default()),
    }
}

/// Returns the factors as elements: small integers, exact in every dtype.
fn factors<T: Ring>(reduction: Reduction<'_>) -> Vec<T> {
    let factors = reduction.factors.iter();
    factors.map(|factor| T::from_i64(*factor as i64)).collect()
}

/// The sum, of contributions times a factor if there is one.
struct Total<T> {
    factors: Vec<T>,
}

impl<T: Ring> Combine for Total<T> {
    type Element = T;
    type Sum = T;

    #[inline]
    fn first(&self, source: usize, element: T) -> T {
        match self.factors.get(source) {
            Some(factor) => element.times(*factor),
            None => element,
        }
    }

    #[inline]
    fn next(&self, sum: T, source: usize, element: T) -> T {
        sum.plus(self.first(source, element))
    }

    #[inline]
    fn result(&self, sum: T) -> T {
        sum
    }
}

/// The result of real numbers, rounded once: products, averages, and sums of contributions times a factor.
struct Whole<'a, R> {
    reduction: Reduction<'a>,
    element: std::marker::PhantomData<R>,
}

impl<'a, R> Whole<'a, R> {
    fn of(reduction: Reduction<'a>) -> Self {
        Self {
            reduction,
            element: std::marker::PhantomData,
        }
    }

    fn factor(&self, source: usize) -> f64 {
        match self.reduction.op {
            ReduceOp::PremulSum => self.reduction.factors[source],
            _ => 1.0,
        }
    }
}

impl<R: Real> Combine for Whole<'_, R> {
    type Element = R;
    type Sum = DoubleDouble;

    fn first(&self, source: usize, element: R) -> DoubleDouble {
        DoubleDouble::from(element.to_f64()).times(self.factor(source))
    }

    fn next(&self, sum: DoubleDouble, source: usize, element: R) -> DoubleDouble {
        match self.reduction.op {
            ReduceOp::Product => sum.times(element.to_f64()),
            _ => sum.and(self.first(source, element)),
        }
    }

    fn result(&self, sum: DoubleDouble) -> R {
        R::from_f64(match self.reduction.op {
            ReduceOp::Avg => sum.over(self.reduction.divisor as f64).to_f64(),
            _ => sum.to_f64(),
        })
    }
}

struct RealAverage<R>(f64, std::marker::PhantomData<R>);

impl<R: Real> Combine for RealAverage<R> {
    type Element = R;
    type Sum = f64;

    #[inline]
    fn first(&self, _: usize, element: R) -> f64 {
        element.to_f64()
    }

    #[inline]
    fn next(&self, sum: f64, _: usize, element: R) -> f64 {
        sum + element.to_f64()
    }

    #[inline]
    fn result(&self, sum: f64) -> R {
        R::from_f64(sum / self.0)
    }
}

/// The real and the imaginary part, each for itself.
struct BothParts<C>(C);

impl<R: Real, C: Combine<Element = R>> Combine for BothParts<C> {
    type Element = Complex<R>;
    type Sum = (C::Sum, C::Sum);

    #[inline]
    fn first(&self, source: usize, element: Complex<R>) -> Self::Sum {
        (
            self.0.first(source, element.re),
            self.0.first(source, element.im),
        )
    }

    #[inline]
    fn next(&self, sum: Self::Sum, source: usize, element: Complex<R>) -> Self::Sum {
        (
            self.0.next(sum.0, source, element.re),
            self.0.next(sum.1, source, element.im),
        )
    }

    #[inline]
    fn result(&self, sum: Self::Sum) -> Complex<R> {
        Complex {
            re: self.0.result(sum.0),
            im: self.0.result(sum.1),
        }
    }
}

struct IntegerAverage<I>(u64, std::marker::PhantomData<I>);

impl<I: Integer> Combine for IntegerAverage<I> {
    type Element = I;
    type Sum = I;

    #[inline]
    fn first(&self, _: usize, element: I) -> I {
        element
    }

    #[inline]
    fn next(&self, sum: I, _: usize, element: I) -> I {
        sum.plus(element)
    }

    #[inline]
    fn result(&self, sum: I) -> I {
        sum.divide(self.0)
    }
}

/// Operators whose partial result is an element of the dtype.
macro_rules! fold {
    ($($name:ident: $bound:ident, $next:expr;)*) => {$(
        struct $name<T>(std::marker::PhantomData<T>);

        impl<T> Default for $name<T> {
            fn default() -> Self {
                Self(std::marker::PhantomData)
            }
        }

        impl<T: $bound> Combine for $name<T> {
            type Element = T;
            type Sum = T;

            #[inline]
            fn first(&self, _: usize, element: T) -> T {
                element
            }

            #[inline]
            fn next(&self, sum: T, _: usize, element: T) -> T {
                let next: fn(T, T) -> T = $next;
                next(sum, element)
            }

            #[inline]
            fn result(&self, sum: T) -> T {
                sum
            }
        }
    )*};
}

fold! {
    Product: Ring, |sum, element| sum.times(element);
    Least: Ordered, |sum, element| if element.below(sum) || element.is_unordered() { element } else { sum };
    Greatest: Ordered, |sum, element| if sum.below(element) || element.is_unordered() { element } else { sum };
    And: Bits, |sum, element| sum.and(element);
    Or: Bits, |sum, element| sum.or(element);
    Xor: Bits, |sum, element| sum.xor(element);
}
