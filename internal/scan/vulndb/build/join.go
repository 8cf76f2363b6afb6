package build

import (
	"bytes"
	"errors"
	"slices"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/score"
)

const relatedMost = 200 // ids that one vulnerability is related to

// joined is a vulnerability as its facts come together, in the order of their bytes.
type joined struct {
	v              vulndb.Vulnerability
	rank           int
	configurations [][]byte // of the lowest rank, sorted
}

func newJoined(id string) *joined {
	return &joined{v: vulndb.Vulnerability{ID: id, Score: vulndb.Score{Severity: vulndb.Unknown}}, rank: 255}
}

func (j *joined) add(fact []byte) error {
	switch {
	case len(fact) > 0 && fact[0] == partFact:
		var part vulndb.Vulnerability
		if err := part.UnmarshalBinary(fact[1:]); err != nil {
			return err
		}
		j.part(part)
		return nil
	case len(fact) > 1 && fact[0] == configurationFact:
		rank := int(fact[1])
		if rank < j.rank {
			j.rank, j.configurations = rank, nil
		}
		if rank == j.rank {
			j.configurations = append(j.configurations, bytes.Clone(fact[2:]))
		}
		return nil
	default:
		return errors.New("unknown kind of record")
	}
}

func (j *joined) part(p vulndb.Vulnerability) {
	if score.Better(p.Score, j.v.Score) {
		j.v.Score = p.Score
	}
	if j.v.URL == "" || p.URL != "" && p.URL < j.v.URL {
		j.v.URL = p.URL
	}
	j.v.Related = append(j.v.Related, p.Related...)
	if p.Exploited {
		since := p.ExploitedSince
		if j.v.ExploitedSince.IsZero() || !since.IsZero() && since.Before(j.v.ExploitedSince) {
			j.v.ExploitedSince = since
		}
		j.v.Exploited = true
	}
	j.v.EPSS = max(j.v.EPSS, p.EPSS)
	j.v.EPSSPercentile = max(j.v.EPSSPercentile, p.EPSSPercentile)
	j.v.Rejected = j.v.Rejected || p.Rejected
}

func (j *joined) result() vulndb.Vulnerability {
	slices.Sort(j.v.Related)
	j.v.Related = slices.Compact(j.v.Related)
	j.v.Related = j.v.Related[:min(len(j.v.Related), relatedMost)]
	return j.v
}
