package record

// SeriesRecord is the record of some steps, from which a new controller resumes. It has those of the
// cloud, those of groups, or the usage in one step.
type SeriesRecord struct {
	Step   int64                   `json:"step"` // seconds
	Points []SeriesStep            `json:"points"`
	Groups map[string][]SeriesStep `json:"groups,omitempty"` // group id -> its steps
	Usage  *UsageStep              `json:"usage,omitempty"`
}

// LastStep returns the number of the newest step in the record; -1: it has none.
func (r *SeriesRecord) LastStep() int64 {
	last := int64(-1)
	if n := len(r.Points); n > 0 {
		last = r.Points[n-1].At
	}
	for _, points := range r.Groups {
		if n := len(points); n > 0 {
			last = max(last, points[n-1].At)
		}
	}
	if r.Usage != nil {
		last = max(last, r.Usage.At)
	}
	return last
}

// SeriesStep is one step in a record. Its keys are short because there are many of them.
type SeriesStep struct {
	At      int64    `json:"t"` // number of the step since 1970
	Samples int      `json:"n"`
	Running int      `json:"r,omitempty"`
	Queue   int      `json:"q,omitempty"`
	Peak    int      `json:"m,omitempty"`
	Pulled  int64    `json:"b,omitempty"`
	Starts  []uint32 `json:"s,omitempty"` // pairs of a class and the starts in it

	Failures    int `json:"f,omitempty"`
	Slots       int `json:"u,omitempty"`
	Capacity    int `json:"c,omitempty"`
	Active      int `json:"a,omitempty"` // nodes
	Offline     int `json:"o,omitempty"` // nodes
	LeastActive int `json:"i,omitempty"` // nodes in a sample, plus 1; 0: nodes were not counted
	MostOffline int `json:"x,omitempty"` // nodes in a sample
}

// UsageStep is the usage in one step: by group, owner and template.
type UsageStep struct {
	At      int64      `json:"t"` // number of the step since 1970
	Samples int        `json:"n"`
	Rows    []UsageRow `json:"rows"`
}

// UsageRow is the usage of one group, owner or template in a step.
type UsageRow struct {
	By       string   `json:"by"`
	Key      string   `json:"k,omitempty"`
	Other    bool     `json:"other,omitempty"` // it sums up those with little usage
	Name     string   `json:"name,omitempty"`
	Seconds  float64  `json:"h,omitempty"` // in which instances were Started, summed over the instances
	Starts   int      `json:"c,omitempty"`
	Failures int      `json:"f,omitempty"`
	Queued   []uint32 `json:"q,omitempty"` // pairs of a class of times until the placement, and the number in it
	Started  []uint32 `json:"s,omitempty"` // the same of the times until the VM started
}
