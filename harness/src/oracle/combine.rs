//! Reduction: the elements of several blocks combined into one result.
//!
//! In: places in payloads. Out: the result's bytes. On the exact lane no step rounds, so the order of the ranks does
//! not matter; an average is taken in `f64` and rounded once.

use half::{bf16, f16};

use super::float8::{E4m3fn, E5m2};
use super::number::{Bits, Bool, Complex, Integer, Number, Ordered, Real, Ring};
use super::place::Place;
use crate::dtype::{DType, ReduceOp};
use crate::protocol::PREMUL_FACTOR;

/// How contributions become a result.
trait Combine {
    /// Their type.
    type Element: Number;
    /// A result in the making.
    type Sum: Copy;

    /// The first contribution.
    fn first(&self, element: Self::Element) -> Self::Sum;
    /// One more.
    fn next(&self, sum: Self::Sum, element: Self::Element) -> Self::Sum;
    /// The result.
    fn result(&self, sum: Self::Sum) -> Self::Element;
}

/// A block to be combined: the payload it lies in, and where.
pub(super) type Source<'a> = (&'a [u8], Place);

/// What to compute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reduction {
    /// Element type.
    pub dtype: DType,
    /// Operator.
    pub op: ReduceOp,
    /// What an average is divided by.
    pub divisor: u64,
}

/// Combines `len` elements of every source and writes the results, dense, to `out`. There is at least one source.
pub(super) fn combine(reduction: Reduction, sources: &[Source<'_>], len: usize, out: &mut [u8]) {
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
pub(super) fn combine_one(reduction: Reduction, elements: &[u8]) -> u128 {
    let size = reduction.dtype.size();
    let sources: Vec<Source<'_>> = (0..elements.len() / size)
        .map(|index| (elements, Place::of_dense(size, index)))
        .collect();
    let mut out = [0; 16];
    combine(reduction, &sources, 1, &mut out[..size]);
    u128::from_le_bytes(out)
}

struct Job<'a> {
    reduction: Reduction,
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
            let zero = how.first(C::Element::load(&first.0[first.1.range(start)]));
            let sums = &mut [zero; TILE][..count];
            each(first, start, sums, |sum, element| *sum = how.first(element));
            for source in rest {
                each(source, start, sums, |sum, element| {
                    *sum = how.next(*sum, element)
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

/// Shows every sum of a tile its element of a source.
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
    match job.reduction.op {
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
        ReduceOp::Avg => {
            let divisor = job.reduction.divisor;
            job.run(&ComplexAverage(RealAverage::<R>(
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
        ReduceOp::PremulSum => job.run(&Total {
            factor: Some(T::from_i64(PREMUL_FACTOR as i64)),
        }),
        _ => job.run(&Total::<T> { factor: None }),
    }
}

fn bits<B: Bits>(job: &mut Job<'_>) {
    match job.reduction.op {
        ReduceOp::Band => job.run(&And::<B>::default()),
        ReduceOp::Bor => job.run(&Or::<B>::default()),
        _ => job.run(&Xor::<B>::default()),
    }
}

/// The sum, of contributions times a factor if there is one.
struct Total<T> {
    factor: Option<T>,
}

impl<T: Ring> Combine for Total<T> {
    type Element = T;
    type Sum = T;

    #[inline]
    fn first(&self, element: T) -> T {
        self.factor.map_or(element, |factor| element.times(factor))
    }

    #[inline]
    fn next(&self, sum: T, element: T) -> T {
        sum.plus(self.first(element))
    }

    #[inline]
    fn result(&self, sum: T) -> T {
        sum
    }
}

struct RealAverage<R>(f64, std::marker::PhantomData<R>);

impl<R: Real> Combine for RealAverage<R> {
    type Element = R;
    type Sum = f64;

    #[inline]
    fn first(&self, element: R) -> f64 {
        element.to_f64()
    }

    #[inline]
    fn next(&self, sum: f64, element: R) -> f64 {
        sum + element.to_f64()
    }

    #[inline]
    fn result(&self, sum: f64) -> R {
        R::from_f64(sum / self.0)
    }
}

struct ComplexAverage<R>(RealAverage<R>);

impl<R: Real> Combine for ComplexAverage<R> {
    type Element = Complex<R>;
    type Sum = (f64, f64);

    #[inline]
    fn first(&self, element: Complex<R>) -> (f64, f64) {
        (self.0.first(element.re), self.0.first(element.im))
    }

    #[inline]
    fn next(&self, sum: (f64, f64), element: Complex<R>) -> (f64, f64) {
        (
            self.0.next(sum.0, element.re),
            self.0.next(sum.1, element.im),
        )
    }

    #[inline]
    fn result(&self, sum: (f64, f64)) -> Complex<R> {
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
    fn first(&self, element: I) -> I {
        element
    }

    #[inline]
    fn next(&self, sum: I, element: I) -> I {
        sum.plus(element)
    }

    #[inline]
    fn result(&self, sum: I) -> I {
        sum.divide(self.0)
    }
}

/// Operators whose result in the making is an element.
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
            fn first(&self, element: T) -> T {
                element
            }

            #[inline]
            fn next(&self, sum: T, element: T) -> T {
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
    Least: Ordered, |sum, element| if element.below(sum) { element } else { sum };
    Greatest: Ordered, |sum, element| if sum.below(element) { element } else { sum };
    And: Bits, |sum, element| sum.and(element);
    Or: Bits, |sum, element| sum.or(element);
    Xor: Bits, |sum, element| sum.xor(element);
}
