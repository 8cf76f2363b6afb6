package record

// SeriesRecord is the record of some steps, from which a new controller resumes.
type SeriesRecord struct {
	Step   int64        `json:"step"` // seconds
	Points []SeriesStep `json:"points"`
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
}
