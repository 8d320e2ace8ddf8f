// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var colors = []color.NRGBA{
	{0x1b, 0x6c, 0xa8, 0xff}, {0xd1, 0x49, 0x5b, 0xff}, {0x2e, 0x93, 0x3c, 0xff}, {0x8d, 0x5a, 0x97, 0xff},
	{0xc9, 0x7b, 0x1f, 0xff},
	{0x3a, 0x3a, 0x3a, 0xff}, {0x0f, 0x9d, 0x9d, 0xff}, {0xb0, 0xa0, 0x20, 0xff}, {0xe3, 0x77, 0xc2, 0xff},
	{0x7f, 0x7f, 0x7f, 0xff},
}

const (
	width, height vg.Length = 560, 340
	legendWidth   vg.Length = 140
)

// SVG draws charts below one another. It leaves out charts without a point and returns nil if none
// has one.
func SVG(charts ...Chart) []byte {
	var plots []*plot.Plot
	var legends []plot.Legend
	for i := range charts {
		if p, legend := charts[i].plot(); p != nil {
			plots, legends = append(plots, p), append(legends, legend)
		}
	}
	if len(plots) == 0 {
		return nil
	}
	canvas := vgsvg.New(width, height*vg.Length(len(plots)))
	all := draw.New(canvas)
	for i, p := range plots {
		below := vg.Length(len(plots)-1-i) * height
		area := draw.Crop(all, 0, 0, below, below+height-all.Max.Y)
		p.Draw(draw.Crop(area, 6, -legendWidth, 4, -6))
		legends[i].Draw(draw.Crop(area, width-legendWidth+12, 0, 0, -30))
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		panic(err) // a bytes.Buffer accepts every write
	}
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arial,sans-serif;"))
}

// plot returns nil if the chart has no point.
func (c *Chart) plot() (*plot.Plot, plot.Legend) {
	series := c.layout()
	var xs, ys []float64
	for _, s := range series {
		for _, q := range s.Points {
			xs, ys = append(xs, q.X), append(ys, q.Y)
		}
	}
	if len(xs) == 0 {
		return nil, plot.Legend{}
	}
	if (c.Zero || c.Stack) && !c.LogY {
		ys = append(ys, 0)
	}
	p := plot.New()
	p.Title.Text = c.Title
	p.Title.Padding = 6
	p.Add(grid())
	setAxis(&p.X, c.X, c.LogX, xs)
	setAxis(&p.Y, c.Y, c.LogY, ys)
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.ThumbnailWidth, legend.Padding = true, true, 18, 4
	for _, style := range []*vg.Length{&p.Title.TextStyle.Font.Size, &p.X.Label.TextStyle.Font.Size,
		&p.Y.Label.TextStyle.Font.Size, &legend.TextStyle.Font.Size} {
		*style = 11
	}
	p.Title.TextStyle.Font.Size = 13
	for _, text := range []*draw.TextStyle{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &legend.TextStyle} {
		text.Font.Variant = "Sans"
	}
	drawn := make([][]plot.Plotter, len(series))
	for i, s := range series {
		var thumbnails []plot.Thumbnailer
		drawn[i], thumbnails = c.line(&s, colors[i%len(colors)], p.X.Min, p.Y.Min)
		legend.Add(s.Name, thumbnails...)
	}
	for i := range drawn { // areas reach down to the axis: the top of a stack comes first
		if c.Stack {
			i = len(drawn) - 1 - i
		}
		if !series[i].Reference {
			p.Add(drawn[i]...)
		}
	}
	for i := range drawn {
		if series[i].Reference {
			p.Add(drawn[i]...)
		}
	}
	// Adding a plotter widens the axes to its data.
	p.X.Min, p.X.Max = axisRange(xs, c.LogX)
	p.Y.Min, p.Y.Max = axisRange(ys, c.LogY)
	return p, legend
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.Gray{0xdd}, color.Gray{0xdd}
	return g
}

func setAxis(a *plot.Axis, label string, log bool, values []float64) {
	a.Label.Text = label
	a.Min, a.Max = axisRange(values, log)
	a.Tick.Marker = plot.TickerFunc(linearTicks)
	if log {
		a.Scale = plot.LogScale{}
		a.Tick.Marker = plot.TickerFunc(logTicks)
	}
}

// line returns the plotters that draw a series. Coordinates at or below 0 on a logarithmic axis
// move to the axis' minimum.
func (c *Chart) line(s *Series, ink color.NRGBA, minX, minY float64) ([]plot.Plotter, []plot.Thumbnailer) {
	var points plotter.XYs
	for _, q := range s.Points {
		if c.LogX {
			q.X = max(q.X, minX)
		}
		if c.LogY {
			q.Y = max(q.Y, minY)
		}
		points = append(points, q)
	}
	line := &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: ink, Width: 1.5}}
	if c.Steps {
		line.StepStyle = plotter.PostStep
	}
	markers := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: ink, Radius: 3,
		Shape: draw.CircleGlyph{}}}
	switch {
	case s.Reference:
		line.Dashes = []vg.Length{4, 3}
		markers.Shape = draw.RingGlyph{}
	case c.Stack:
		line.FillColor = pale(ink)
		fallthrough
	case c.Steps:
		return []plot.Plotter{line}, []plot.Thumbnailer{line}
	}
	return []plot.Plotter{line, markers}, []plot.Thumbnailer{line, markers}
}

// pale mixes a color with white.
func pale(c color.NRGBA) color.NRGBA {
	mix := func(v uint8) uint8 { return uint8(math.Round(0.35*float64(v) + 0.65*255)) }
	return color.NRGBA{mix(c.R), mix(c.G), mix(c.B), 0xff}
}

// linearTicks returns three to seven ticks at multiples of a round step.
func linearTicks(low, high float64) (out []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/3)))
	for (high-low)/step > 7 {
		step *= 2
	}
	for v := math.Ceil(low/step) * step; v <= high+step/1e6; v += step {
		out = append(out, plot.Tick{Value: v, Label: Number(v)})
	}
	return out
}

// logTicks returns at most seven ticks at powers of ten.
func logTicks(low, high float64) (out []plot.Tick) {
	step := math.Pow(10, math.Max(1, math.Ceil(math.Log10(high/low)/6)))
	for v := low; v <= high*1.0001; v *= step {
		out = append(out, plot.Tick{Value: v, Label: Number(v)})
	}
	return out
}

// Number formats a value for an axis or the head of a table: up to six decimals, and a power of ten
// if it is very small or large.
func Number(v float64) string {
	if v != 0 && (math.Abs(v) < 0.001 || math.Abs(v) >= 1e6) {
		return strconv.FormatFloat(v, 'e', 0, 64)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'g', -1, 64)
}
