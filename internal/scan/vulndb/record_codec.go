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

// refer appends a text, or its number if it is shared.
func (e *encoder) refer(in interner, s string) {
	n := uint64(0)
	if s != "" {
		n = in(s)
	}
	e.uint(n)
	if n == 0 {
		e.text(s)
	}
}

func (d *decoder) refer(res resolver) string {
	n := d.uint()
	if n == 0 {
		return d.text()
	}
	if d.err != nil {
		return ""
	}
	s, err := res(n)
	if err != nil {
		d.err = err
		return ""
	}
	if !d.spend(len(s)) {
		return ""
	}
	return s
}

// flag returns bit if on, else 0.
func flag(bit byte, on bool) byte {
	if on {
		return bit
	}
	return 0
}

// Flags of an advisory and of a range.
const (
	flagUnconfirmed = 1 << iota
	flagUsualPage
	flagPlatform
)

const (
	flagIntroduced = 1 << iota
	flagIntroducedOpen
	flagFixed
	flagLastAffected
)

func (e *encoder) advisory(in interner, a Advisory) {
	usual := a.URL == Page(a.Source, a.ID)
	e.byte(flag(flagUnconfirmed, a.Unconfirmed) | flag(flagUsualPage, usual) | flag(flagPlatform, a.Platform != ""))
	e.refer(in, string(a.Source))
	e.refer(in, string(a.Ecosystem))
	e.text(a.ID)
	e.text(a.Name)
	if !usual {
		e.text(a.URL)
	}
	if a.Platform != "" {
		e.text(a.Platform)
	}
	e.texts(a.CVEs)
	e.texts(a.Related)
	e.uint(uint64(len(a.Ranges)))
	for _, r := range a.Ranges {
		e.rng(r)
	}
	e.uint(uint64(len(a.Versions)))
	before := ""
	for _, v := range a.Versions {
		e.follow(before, v)
		before = v
	}
}

func (d *decoder) advisory(res resolver) Advisory {
	flags := d.byte()
	a := Advisory{
		Unconfirmed: flags&flagUnconfirmed != 0,
		Source:      Source(d.refer(res)),
		Ecosystem:   Ecosystem(d.refer(res)),
		ID:          d.text(),
		Name:        d.text(),
	}
	if a.URL = Page(a.Source, a.ID); flags&flagUsualPage == 0 {
		a.URL = d.text()
	}
	if flags&flagPlatform != 0 {
		a.Platform = d.text()
	}
	a.CVEs = d.texts()
	a.Related = d.texts()
	if n := d.count(56); n > 0 {
		a.Ranges = make([]Range, 0, n)
		for range n {
			a.Ranges = append(a.Ranges, d.rng())
		}
	}
	if n := d.count(16); n > 0 {
		a.Versions = make([]string, 0, n)
		before := ""
		for range n {
			before = d.follow(before)
			a.Versions = append(a.Versions, before)
		}
	}
	return a
}

func (e *encoder) rng(r Range) {
	e.byte(flag(flagIntroduced, r.Introduced != "") | flag(flagIntroducedOpen, r.IntroducedOpen) |
		flag(flagFixed, r.Fixed != "") | flag(flagLastAffected, r.LastAffected != ""))
	for _, s := range []string{r.Introduced, r.Fixed, r.LastAffected} {
		if s != "" {
			e.text(s)
		}
	}
}

func (d *decoder) rng() Range {
	flags := d.byte()
	r := Range{IntroducedOpen: flags&flagIntroducedOpen != 0}
	if flags&flagIntroduced != 0 {
		r.Introduced = d.text()
	}
	if flags&flagFixed != 0 {
		r.Fixed = d.text()
	}
	if flags&flagLastAffected != 0 {
		r.LastAffected = d.text()
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
	flags := flag(flagExploited, v.Exploited) | flag(flagRejected, v.Rejected) | flag(flagScored, scored) |
		flag(flagURL, v.URL != "" && v.URL != cvePage(v.ID)) | flag(flagEPSS, v.EPSS != 0 || v.EPSSPercentile != 0)
	e.byte(flags)
	if flags&flagScored != 0 {
		e.score(in, v.Score)
	}
	if flags&flagURL != 0 {
		e.text(v.URL)
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
	e.texts(v.Related)
}

func (d *decoder) vulnerability(res resolver, id string) Vulnerability {
	flags := d.byte()
	v := Vulnerability{ID: id, URL: cvePage(id), Exploited: flags&flagExploited != 0, Rejected: flags&flagRejected != 0}
	v.Score.Severity = Unknown
	if flags&flagScored != 0 {
		v.Score = d.score(res)
	}
	if flags&flagURL != 0 {
		v.URL = d.text()
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
	v.Related = d.texts()
	return v
}

func (e *encoder) score(in interner, s Score) {
	e.byte(byte(math.Round(min(max(s.Base, 0), 10) * 10)))
	e.byte(byte(max(0, slices.Index(severities, s.Severity))))
	e.refer(in, s.Version)
	e.refer(in, s.Vector)
	e.refer(in, string(s.Source))
}

func (d *decoder) score(res resolver) Score {
	s := Score{Base: min(float64(d.byte())/10, 10)}
	s.Severity = severities[min(int(d.byte()), len(severities)-1)]
	s.Version = d.refer(res)
	s.Vector = d.refer(res)
	s.Source = Source(d.refer(res))
	return s
}
