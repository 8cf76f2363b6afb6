package vulndb

import (
	"math"
	"slices"
	"time"
)

// interner returns the number of a text, which repeated texts share; 0 marks an inline text.
type interner func(s string) uint64

// resolver returns the text of a number from an interner.
type resolver func(n uint64) (string, error)

// internedString appends a text, or its number if it is shared.
func (e *encoder) internedString(in interner, s string) {
	n := uint64(0)
	if s != "" {
		n = in(s)
	}
	e.uint(n)
	if n == 0 {
		e.str(s)
	}
}

func (d *decoder) internedString(res resolver) string {
	n := d.uint()
	if n == 0 {
		return d.str()
	}
	if d.err != nil {
		return ""
	}
	s, err := res(n)
	if err != nil {
		d.err = err
		return ""
	}
	if !d.reserve(len(s)) {
		return ""
	}
	return s
}

// flagIf returns bit if on, else 0.
func flagIf(bit byte, on bool) byte {
	if on {
		return bit
	}
	return 0
}

// Flags of an advisory and of a range.
const (
	flagUnconfirmed = 1 << iota
	flagDefaultURL
	flagPlatform
)

const (
	flagIntroduced = 1 << iota
	flagIntroducedOpen
	flagFixed
	flagLastAffected
)

func (e *encoder) advisory(in interner, a Advisory) {
	usual := a.URL == RecordURL(a.Source, a.ID)
	e.byte(flagIf(flagUnconfirmed, a.Unconfirmed) | flagIf(flagDefaultURL, usual) |
		flagIf(flagPlatform, a.Platform != ""))
	e.internedString(in, string(a.Source))
	e.internedString(in, string(a.Ecosystem))
	e.str(a.ID)
	e.str(a.Name)
	if !usual {
		e.str(a.URL)
	}
	if a.Platform != "" {
		e.str(a.Platform)
	}
	e.strs(a.CVEs)
	e.strs(a.Related)
	e.uint(uint64(len(a.Ranges)))
	for _, r := range a.Ranges {
		e.versionRange(r)
	}
	e.uint(uint64(len(a.Versions)))
	before := ""
	for _, v := range a.Versions {
		e.deltaString(before, v)
		before = v
	}
}

func (d *decoder) advisory(res resolver) Advisory {
	flags := d.byte()
	a := Advisory{
		Unconfirmed: flags&flagUnconfirmed != 0,
		Source:      Source(d.internedString(res)),
		Ecosystem:   Ecosystem(d.internedString(res)),
		ID:          d.str(),
		Name:        d.str(),
	}
	if a.URL = RecordURL(a.Source, a.ID); flags&flagDefaultURL == 0 {
		a.URL = d.str()
	}
	if flags&flagPlatform != 0 {
		a.Platform = d.str()
	}
	a.CVEs = d.strs()
	a.Related = d.strs()
	if n := d.itemCount(56); n > 0 {
		a.Ranges = make([]Range, 0, n)
		for range n {
			a.Ranges = append(a.Ranges, d.versionRange())
		}
	}
	if n := d.itemCount(16); n > 0 {
		a.Versions = make([]string, 0, n)
		before := ""
		for range n {
			before = d.deltaString(before)
			a.Versions = append(a.Versions, before)
		}
	}
	return a
}

func (e *encoder) versionRange(r Range) {
	e.byte(flagIf(flagIntroduced, r.Introduced != "") | flagIf(flagIntroducedOpen, r.IntroducedOpen) |
		flagIf(flagFixed, r.Fixed != "") | flagIf(flagLastAffected, r.LastAffected != ""))
	for _, s := range []string{r.Introduced, r.Fixed, r.LastAffected} {
		if s != "" {
			e.str(s)
		}
	}
}

func (d *decoder) versionRange() Range {
	flags := d.byte()
	r := Range{IntroducedOpen: flags&flagIntroducedOpen != 0}
	if flags&flagIntroduced != 0 {
		r.Introduced = d.str()
	}
	if flags&flagFixed != 0 {
		r.Fixed = d.str()
	}
	if flags&flagLastAffected != 0 {
		r.LastAffected = d.str()
	}
	return r
}

const (
	flagExploited = 1 << iota
	flagRejected
	flagScored
	flagURL
	flagEPSS
)

var severities = []Severity{Unknown, Low, Medium, High, Critical}

const epssUnit = 1e9 // EPSS is published with up to nine digits

func (e *encoder) vulnerability(in interner, v Vulnerability) {
	scored := v.Score != Score{} && v.Score != Score{Severity: Unknown}
	flags := flagIf(flagExploited, v.Exploited) | flagIf(flagRejected, v.Rejected) | flagIf(flagScored, scored) |
		flagIf(flagURL, v.URL != "" && v.URL != cveURL(v.ID)) | flagIf(flagEPSS, v.EPSS != 0 || v.EPSSPercentile != 0)
	e.byte(flags)
	if flags&flagScored != 0 {
		e.score(in, v.Score)
	}
	if flags&flagURL != 0 {
		e.str(v.URL)
	}
	if flags&flagExploited != 0 {
		since := v.ExploitedSince
		if since.IsZero() {
			since = time.Unix(0, 0)
		}
		e.uint(uint64(max(0, since.Unix())))
	}
	if flags&flagEPSS != 0 {
		e.uint(uint64(math.Round(v.EPSS * epssUnit)))
		e.uint(uint64(math.Round(v.EPSSPercentile * epssUnit)))
	}
	e.strs(v.Related)
}

func (d *decoder) vulnerability(res resolver, id string) Vulnerability {
	flags := d.byte()
	v := Vulnerability{ID: id, URL: cveURL(id), Exploited: flags&flagExploited != 0, Rejected: flags&flagRejected != 0}
	v.Score.Severity = Unknown
	if flags&flagScored != 0 {
		v.Score = d.score(res)
	}
	if flags&flagURL != 0 {
		v.URL = d.str()
	}
	if flags&flagExploited != 0 {
		if s := d.uint(); s > 0 && s < 1<<40 {
			v.ExploitedSince = time.Unix(int64(s), 0).UTC()
		}
	}
	if flags&flagEPSS != 0 {
		v.EPSS = min(float64(d.uint())/epssUnit, 1)
		v.EPSSPercentile = min(float64(d.uint())/epssUnit, 1)
	}
	v.Related = d.strs()
	return v
}

func (e *encoder) score(in interner, s Score) {
	e.byte(byte(math.Round(min(max(s.Base, 0), 10) * 10)))
	e.byte(byte(max(0, slices.Index(severities, s.Severity))))
	e.internedString(in, s.Version)
	e.internedString(in, s.Vector)
	e.internedString(in, string(s.Source))
}

func (d *decoder) score(res resolver) Score {
	s := Score{Base: min(float64(d.byte())/10, 10)}
	s.Severity = severities[min(int(d.byte()), len(severities)-1)]
	s.Version = d.internedString(res)
	s.Vector = d.internedString(res)
	s.Source = Source(d.internedString(res))
	return s
}
