package metric

// Kind is the kind of a family.
type Kind string

// The kinds, by their names in the exposition.
const (
	KindGauge     Kind = "gauge"
	KindCounter   Kind = "counter"
	KindHistogram Kind = "histogram"
)

// Family is one metric as it is exposed: a name with the unit at its end, and the values of all its
// series. Its labels have few values, which the program knows beforehand: never an ID.
type Family struct {
	Name   string
	Kind   Kind
	Help   string   // one sentence without a full stop
	Labels []string // names
	Read   func(*Series)
}

// Series receives the values of a family. The number of labels is the family's.
type Series struct {
	// Value receives one value of a gauge or a counter.
	Value func(value float64, labels ...string)
	// Distribution receives one histogram.
	Distribution func(d Distribution, labels ...string)
}

// GaugeFamily returns a family of one gauge.
func GaugeFamily(name, help string, read func() float64) Family {
	return Family{Name: name, Kind: KindGauge, Help: help, Read: func(s *Series) { s.Value(read()) }}
}

// CounterFamily returns a family of one counter.
func CounterFamily(name, help string, c *Counter) Family {
	return Family{Name: name, Kind: KindCounter, Help: help, Read: func(s *Series) { s.Value(c.Value()) }}
}

// HistogramFamily returns a family of one histogram.
func HistogramFamily(name, help string, h *Histogram) Family {
	return Family{Name: name, Kind: KindHistogram, Help: help, Read: func(s *Series) { s.Distribution(h.Snapshot()) }}
}

// WithOldNames returns families and, for each that was renamed, a copy under its old name, whose help names
// the new one. The keys of oldNames are new names. An old name is exported for one release.
func WithOldNames(families []Family, oldNames map[string]string) []Family {
	out := families
	for _, f := range families {
		if old, renamed := oldNames[f.Name]; renamed {
			f.Help = "deprecated: use " + f.Name
			f.Name = old
			out = append(out, f)
		}
	}
	return out
}

// The values of the label result.
const (
	OK     = "ok"
	Failed = "failed"
)

// Results counts successes and failures.
type Results struct{ OK, Failed Counter }

// Observe counts one result by its error.
func (r *Results) Observe(err error) {
	if err != nil {
		r.Failed.Inc()
	} else {
		r.OK.Inc()
	}
}

// Family returns a family with the label result.
func (r *Results) Family(name, help string) Family {
	return Family{Name: name, Kind: KindCounter, Help: help, Labels: []string{"result"}, Read: func(s *Series) {
		s.Value(r.OK.Value(), OK)
		s.Value(r.Failed.Value(), Failed)
	}}
}
