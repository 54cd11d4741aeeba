"""Walk the wells of a screening plate

A plate of high-content screening has hundreds of small images: wells, with several fields each. `cuzarr.ome.open_plate` opens the arrays of
one level of all fields in three rounds of requests. `read_many` then reads all of them in one call, so the images share transfers and
launches. Here each field becomes one number, the share of bright pixels, and each well the mean of its fields: a heat map of the plate.

The smallest level is enough for that. For training on the full images, [samples](../guide/samples.md#fields-of-a-plate) streams the same
fields in batches.
"""

import argparse
import tempfile

import numpy as np

import cuzarr

ROWS, COLUMNS = "ABCD", [str(number) for number in range(1, 7)]


def make_plate(path, fields):
    """Cells on each well; the dose of a drug rises with the column and kills them, except in row D, the control."""
    rng = np.random.default_rng(17)
    wells = [
        {"path": f"{row}/{column}", "rowIndex": ROWS.index(row), "columnIndex": COLUMNS.index(column)}
        for row in ROWS
        for column in COLUMNS
    ]
    plate = {"rows": [{"name": row} for row in ROWS], "columns": [{"name": column} for column in COLUMNS], "wells": wells}
    plate |= {"name": "dose response", "field_count": fields}
    group = cuzarr.create_group(path, attributes={"ome": {"version": "0.5", "plate": plate}})
    y, x = np.mgrid[:256, :256]
    for well in wells:
        images = [{"path": str(number)} for number in range(fields)]
        group.create_group(well["path"], attributes={"ome": {"version": "0.5", "well": {"images": images}}})
        dose = 0 if well["path"][0] == "D" else well["columnIndex"] / 5
        for number in range(fields):
            image = rng.normal(300, 30, (256, 256))
            for cy, cx in rng.uniform(10, 246, (int(40 * (1 - 0.9 * dose)), 2)):
                near = np.s_[max(int(cy) - 14, 0) : int(cy) + 14, max(int(cx) - 14, 0) : int(cx) + 14]
                image[near] += 2500 * np.exp(-((y[near] - cy) ** 2 + (x[near] - cx) ** 2) / 40)
            cuzarr.pyramid(image.clip(0, 65535).astype("uint16"), path, path=f"{well['path']}/{number}", axes="yx", levels=3)


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        make_plate(f"{folder}/screen.zarr", arguments.fields)

        plate = cuzarr.ome.open_plate(f"{folder}/screen.zarr", level=-1)
        images = cuzarr.read_many([(field.array, ...) for field in plate.fields])
        print(f"{plate.name}: {len(plate.wells)} wells, {len(plate.fields)} fields of {images[0].shape}, read by one call")

        sums = np.zeros((len(plate.rows), len(plate.columns)))
        for field, image in zip(plate.fields, images, strict=True):
            row, column = plate.rows.index(field.row), plate.columns.index(field.column)
            sums[row, column] += float((cuzarr.xp.asnumpy(image) > 800).mean()) / len(plate.wells[field.well])
        for name, values in zip(plate.rows, sums, strict=True):
            print(f"row {name}: " + "  ".join(f"{100 * value:4.1f} %" for value in values))

        # One well at full size: no other well is opened.
        full = cuzarr.ome.open_plate(f"{folder}/screen.zarr", wells=["A/1", "A/6"])
        shown = cuzarr.read_many([(fields[0].array, ...) for fields in full.wells.values()])
        draw(arguments.picture, plate, sums, dict(zip(full.wells, map(cuzarr.xp.asnumpy, shown), strict=True)))


def draw(path, plate, values, wells):
    from matplotlib import pyplot

    figure, axes = pyplot.subplot_mosaic("PP;AB", figsize=(5.6, 6), layout="constrained", height_ratios=(4, 3))
    figure.colorbar(axes["P"].imshow(100 * values, cmap="viridis"), ax=axes["P"], label="% bright")
    axes["P"].set(xticks=range(len(plate.columns)), yticks=range(len(plate.rows)))
    axes["P"].set(xticklabels=plate.columns, yticklabels=plate.rows, title="the plate: share of bright pixels")
    for name, (well, image) in zip("AB", wells.items(), strict=True):
        axes[name].imshow(image, cmap="gray", vmin=200, vmax=2500)
        axes[name].set(title=f"well {well}", xticks=[], yticks=[])
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", type=int, default=3, help="fields of each well")
    parser.add_argument("--picture", default="plate.png")
    arguments = parser.parse_args()
    if arguments.fields < 1:
        parser.error("--fields must be 1 or more")
    main(arguments)
