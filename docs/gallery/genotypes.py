"""Genotypes of a region, for some samples

VCF Zarr holds the genotypes of a cohort as an array of variants, samples and ploidy. A question is about one region and some people: `oindex`
takes a range of variants and a list of samples, and reads the chunks that hold them and no others. A question about all variants, such as
allele frequencies, is a plan that is computed in pieces within a memory limit.

The program finds the carriers of the rarest mutation in a region, and the frequency of every variant in each of two populations.
"""

import argparse
import tempfile

import numpy as np

import cuzarr
from cuzarr.codecs import numcodecs

CONTIGS = ("chr1", "chr2", "chr3")


def make_cohort(path, variants, samples):
    """A store as bio2zarr writes it, in Zarr format 2. Neighbouring variants are alike, and the two halves of the samples differ."""
    rng = np.random.default_rng(23)
    second = np.arange(samples) >= samples // 2
    frequency = rng.beta(0.6, 2.5, variants)[:, None] * np.where(second, 1.0, rng.uniform(0.4, 1.8, (variants, 1)))
    blocks = rng.random((variants // 20 + 1, samples, 2)).repeat(20, axis=0)[:variants]
    draws = np.where(rng.random((variants, samples, 2)) < 0.3, rng.random((variants, samples, 2)), blocks)
    genotypes = (draws < frequency[:, :, None]).astype("int8")
    genotypes[rng.random((variants, samples)) < 0.01] = -1  # a missing call

    contig = np.arange(variants) * len(CONTIGS) // variants
    counts = np.bincount(contig)
    places = np.concatenate([(np.arange(count) + rng.random(count)) / count for count in counts])  # of 0 to 1, in order
    group = cuzarr.open_group(path, mode="w", zarr_format=2, attributes={"vcf_zarr_version": "0.4"})
    blosc = numcodecs.Blosc(cname="zstd", clevel=7, shuffle=2)
    for name, data, dimensions, chunks in (
        ("call_genotype", genotypes, ["variants", "samples", "ploidy"], (500, 50, 2)),
        ("variant_contig", contig.astype("int8"), ["variants"], (2000,)),
        ("variant_position", (1 + 999_999 * places).astype("int32"), ["variants"], (2000,)),
    ):
        group.create_array(name, data=data, chunks=chunks, compressors=[blosc], attributes={"_ARRAY_DIMENSIONS": dimensions})
    text = np.dtypes.StringDType()
    group.create_array("contig_id", data=np.array(CONTIGS, text))
    group.create_array("sample_id", data=np.array([f"S{number:04}" for number in range(samples)], text))


class Index:
    """Which variants a region has. Positions and contigs are small, so they are read once and kept on the host."""

    def __init__(self, path):
        group = cuzarr.open_group(path, mode="r", device="cpu")
        self.contigs, self.samples = group["contig_id"][:].tolist(), group["sample_id"][:].tolist()
        read = group.read(["variant_contig", "variant_position"])
        self.contig, self.position = read["variant_contig"], read["variant_position"]

    def region(self, contig, start, stop):
        """The variants from position `start` to `stop`, both included, as VCF counts."""
        low, high = (int(np.searchsorted(self.contig, self.contigs.index(contig), side)) for side in ("left", "right"))
        own = self.position[low:high]
        return slice(low + int(np.searchsorted(own, start, "left")), low + int(np.searchsorted(own, stop, "right")))


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cohort.vcz"
        make_cohort(path, arguments.variants, 300)
        index = Index(path)
        calls = cuzarr.open_group(path, mode="r")["call_genotype"]  # with device="cuda", results are on the GPU

        where = index.region("chr2", 400_000, 450_000)
        chosen = [index.samples.index(name) for name in ("S0007", "S0011", "S0021", "S0030", "S0042")]
        some = cuzarr.xp.asnumpy(calls.oindex[where, chosen])
        decoded = next(stage["count"] for stage in calls.last_report()["stages"] if stage["stage"] == "decode")
        print(f"chr2:400000-450000 has {where.stop - where.start} variants; {decoded} of {calls.nchunks} chunks were decoded")
        carries = (some > 0).any(axis=2)
        rarest = int(np.where(carries.any(axis=1), carries.sum(axis=1), len(chosen)).argmin())
        names = ", ".join(index.samples[number] for number, has in zip(chosen, carries[rarest], strict=True) if has)
        print(f"chr2:{index.position[where][rarest]} is the rarest among {len(chosen)} samples; carriers: {names or 'none'}")

        # All variants, within a memory limit: alternate alleles of each population, of its called alleles.
        frequencies = []
        for people in (slice(0, 150), slice(150, 300)):
            part = calls.lazy[:, people]
            frequency = cuzarr.xp.sum(part > 0, axis=(1, 2)) / cuzarr.xp.sum(part >= 0, axis=(1, 2))
            frequencies.append(cuzarr.xp.asnumpy(frequency.compute(memory_limit="8 MiB")))
        differ = int((abs(frequencies[0] - frequencies[1]) > 0.2).sum())
        print(f"{len(frequencies[0])} variants; {differ} differ by more than 0.2 between the populations")
        draw(arguments.picture, cuzarr.xp.asnumpy(calls[where, :60]), frequencies)


def draw(path, region, frequencies):
    from matplotlib import colors, pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.4, 6.4), layout="constrained", height_ratios=(3, 4))
    dosage = np.where((region < 0).any(axis=2), -1, region.sum(axis=2))
    palette = colors.ListedColormap(["lightgray", "white", "cornflowerblue", "midnightblue"])
    image = axes[0].imshow(dosage.T, cmap=palette, vmin=-1.5, vmax=2.5, aspect="auto", interpolation="nearest")
    bar = figure.colorbar(image, ax=axes[0], ticks=[-1, 0, 1, 2])
    bar.ax.set_yticklabels(["missing", "0", "1", "2"])
    axes[0].set(title="alternate alleles in the region", xlabel="variant", ylabel="sample")
    axes[1].scatter(*frequencies, s=3, alpha=0.5)
    axes[1].set(xlabel="frequency in population 1", ylabel="frequency in population 2", aspect="equal")
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=int, default=6000)
    parser.add_argument("--picture", default="genotypes.png")
    arguments = parser.parse_args()
    if arguments.variants < 120:
        parser.error("--variants must be 120 or more, so that the region has some")
    main(arguments)
