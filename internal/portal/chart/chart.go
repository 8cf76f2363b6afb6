package chart

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// chartUnit is how the numbers of a Chart are divided and written.
type chartUnit struct {
	steps []float64 // distances of the lines of the grid, ascending
	text  func(float64) string
}

// chartUnits are the units of charts.
var chartUnits = map[string]chartUnit{
	"n": {decimalSteps(1), func(f float64) string { return format.Count(int(f)) }},
	"s": {
		[]float64{.1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400},
		secondsAxis,
	},
	"B": {powersOfTwo(), func(f float64) string { return bytesize.Format(int64(f)) }},
	"%": {[]float64{.1, .25, .5, 1}, func(f float64) string { return format.Percent(f) + " %" }},
}

// decimalSteps returns 1, 2 and 5 times the powers of ten, from a first one.
func decimalSteps(first float64) (steps []float64) {
	for ; first < 1e12; first *= 10 {
		steps = append(steps, first, 2*first, 5*first)
	}
	return steps
}

func powersOfTwo() (steps []float64) {
	for i := 8; i < 56; i++ {
		steps = append(steps, math.Exp2(float64(i)))
	}
	return steps
}

// secondsAxis writes a time on an axis, where all are multiples of a step.
func secondsAxis(f float64) string {
	switch {
	case f >= 3600:
		return strconv.FormatFloat(f/3600, 'g', 3, 64) + " h"
	case f > 60:
		return strconv.FormatFloat(f/60, 'g', 3, 64) + " min"
	}
	return strconv.FormatFloat(f, 'g', 3, 64) + " s"
}

// The size of charts and of small charts in the text, in units of their view boxes.
const (
	chartWidth, chartHeight = 600, 128
	sparkWidth, sparkHeight = 72, 20
	gridLines               = 4 // at most, without the one at zero
	singleWidth             = 4 // of a point between gaps
)

// Chart is a picture of columns of a series. A step that has no point is a gap: nothing was reported then.
type Chart struct {
	Title, Latest string
	YTicks        []string // from the top
	Grid          []int    // y of the lines of the grid
	XTicks        []time.Time
	DayTicks      bool // the ticks are days
	Lines         []Line
	Gaps          []Gap // spans in which no controller reported
	Outages       []Outage
}

// Line is one line of a Chart, and the area below it.
type Line struct {
	Name, Class string
	Line, Area  string // SVG paths
}

// Gap is a span of a Chart without reports.
type Gap struct {
	X, Width int
	Text     string
}

// Outage is a span of a Chart in which nodes were Offline. It is as high as the share of the nodes.
type Outage struct {
	X, Y, Width, Height int
	Text                string
}

// Column is what a line of a Chart shows.
type Column struct {
	Name  string
	Value func(p *api.SeriesPoint) *float64
}

// New draws columns of a series.
func New(title, unit string, s *api.Series, columns ...Column) Chart {
	c := Chart{Title: title, DayTicks: s.To.Sub(s.From) > 36*time.Hour}
	steps := newSeriesSteps(s)
	rows := make([][]*float64, len(columns))
	highest := 0.0
	for i, col := range columns {
		rows[i] = make([]*float64, len(steps.points))
		for j, p := range steps.points {
			if p != nil {
				rows[i][j] = col.Value(p)
			}
			if v := rows[i][j]; v != nil {
				highest = max(highest, *v)
			}
		}
	}
	u := chartUnits[unit]
	step, lines := gridOf(u, highest)
	top := step * float64(lines)
	for i := lines; i >= 0; i-- {
		c.YTicks = append(c.YTicks, u.text(step*float64(i)))
		c.Grid = append(c.Grid, chartHeight*(lines-i)/lines)
	}
	for i, col := range columns {
		line := Line{Name: col.Name, Class: "l"}
		if i > 0 {
			line.Class = "l2"
		}
		line.Line, line.Area = svgPaths(rows[i], top, chartWidth, chartHeight)
		c.Lines = append(c.Lines, line)
	}
	if v := LastValue(rows[0]); v != nil {
		c.Latest = "latest " + u.text(roundedLatest(unit, *v))
	}
	c.Gaps, c.Outages = steps.gaps(), steps.outages()
	for i := range 7 {
		c.XTicks = append(c.XTicks, s.From.Add(s.To.Sub(s.From)*time.Duration(i)/6))
	}
	return c
}

// roundedLatest rounds the newest number of a Chart to tenths; shares are rounded by their text.
func roundedLatest(unit string, v float64) float64 {
	if unit == "%" {
		return v
	}
	return math.Round(v*10) / 10
}

// gridOf returns the distance of the lines of the grid, and how many there are above zero.
func gridOf(u chartUnit, highest float64) (step float64, lines int) {
	for _, step = range u.steps {
		if highest <= step*gridLines {
			break
		}
	}
	return step, min(max(int(math.Ceil(highest/step)), 2), gridLines)
}

// LastValue returns the newest of the last two numbers; nil where nothing was reported of late.
func LastValue(values []*float64) *float64 {
	for _, v := range slices.Backward(values[max(0, len(values)-2):]) {
		if v != nil {
			return v
		}
	}
	return nil
}

// seriesSteps are the steps of a series, nil for those without a point.
type seriesSteps struct {
	points []*api.SeriesPoint
	step   time.Duration
}

func newSeriesSteps(s *api.Series) seriesSteps {
	out := seriesSteps{step: time.Duration(max(s.Step, 1)) * time.Second}
	n := min(int(s.To.Sub(s.From)/out.step)+1, 10000)
	if n < 1 {
		return out
	}
	out.points = make([]*api.SeriesPoint, n)
	for i := range s.Points {
		if at := int(s.Points[i].Time.Sub(s.From) / out.step); at >= 0 && at < n {
			out.points[at] = &s.Points[i]
		}
	}
	return out
}

// gaps returns the spans without points between points.
func (s seriesSteps) gaps() (list []Gap) {
	last := -1
	for i, p := range s.points {
		if p == nil {
			continue
		}
		if missing := i - last - 1; last >= 0 && missing > 0 {
			list = append(list, Gap{
				X: chartWidth * (last + 1) / len(s.points), Width: max(chartWidth*missing/len(s.points), 2),
				Text: "no report for " + format.Duration(time.Duration(missing)*s.step),
			})
		}
		last = i
	}
	return list
}

// leastOutage is the height of the span of one Offline node among many.
const leastOutage = 4

// outages returns the spans with Offline nodes. One ends where the greatest number of them changes.
func (s seriesSteps) outages() (list []Outage) {
	offline := func(i int) int {
		if p := s.points[i]; p != nil && p.OfflineNodesMax != nil {
			return *p.OfflineNodesMax
		}
		return 0
	}
	for i := 0; i < len(s.points); i++ {
		n, begin := offline(i), i
		if n == 0 {
			continue
		}
		active := 0
		for ; i < len(s.points) && offline(i) == n; i++ {
			if least := s.points[i].ActiveNodesMin; least != nil {
				active = max(active, *least)
			}
		}
		height := max(chartHeight*n/(n+active), leastOutage)
		list = append(list, Outage{
			X: chartWidth * begin / len(s.points), Width: max(chartWidth*(i-begin)/len(s.points), 2),
			Y: chartHeight - height, Height: height,
			Text: format.Plural(n, "node", "nodes") + " Offline for " + format.Duration(time.Duration(i-begin)*s.step),
		})
		i-- // the next step may be one with another number
	}
	return list
}

// svgPaths returns the paths of a line and of the area below it. Values that are nil interrupt both.
func svgPaths(values []*float64, top float64, width, height int) (line, area string) {
	var l, a strings.Builder
	x := func(i int) float64 { return float64(width) * float64(i) / float64(max(len(values)-1, 1)) }
	for i := 0; i < len(values); i++ {
		if values[i] == nil {
			continue
		}
		begin := i
		for ; i < len(values) && values[i] != nil; i++ {
			y := float64(height)
			if top > 0 {
				y -= float64(height) * min(max(*values[i]/top, 0), 1)
			}
			fmt.Fprintf(&l, "%c%.1f %.1f", map[bool]rune{true: 'M', false: 'L'}[i == begin], x(i), y)
			fmt.Fprintf(&a, "%c%.1f %.1f", map[bool]rune{true: 'M', false: 'L'}[i == begin], x(i), y)
		}
		if i-1 == begin { // a single point is a short line, which ends within the picture
			fmt.Fprintf(&l, "m%d 0h%d", min(0, width-singleWidth-int(x(begin))), singleWidth)
		}
		fmt.Fprintf(&a, "V%dH%.1fz", height, x(begin))
	}
	return l.String(), a.String()
}

// Spark is a small Chart in a text.
type Spark struct{ Label, Line, Area string }

// NewSpark draws one column of a series in small; nil without two points.
func NewSpark(label string, s *api.Series, value func(p *api.SeriesPoint) *float64) *Spark {
	values := make([]*float64, 0, 64)
	for _, p := range newSeriesSteps(s).points {
		if p == nil {
			values = append(values, nil)
			continue
		}
		values = append(values, value(p))
	}
	return SparkOf(label, values)
}

// SparkOf draws numbers in small; nil without two of them.
func SparkOf(label string, values []*float64) *Spark {
	highest, n := 0.0, 0
	for _, v := range values {
		if v != nil {
			highest, n = max(highest, *v), n+1
		}
	}
	if n < 2 {
		return nil
	}
	line, area := svgPaths(values, highest*1.05, sparkWidth, sparkHeight)
	return &Spark{label, line, area}
}
