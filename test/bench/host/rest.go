package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

// The rows of a service that has nothing to do.
const (
	rowIdle     = "idle-ticks"
	rowAnon     = "idle-anon"
	rowResident = "idle-resident"
)

// idleTime is how long a service that has nothing to do is looked at.
const idleTime = time.Minute

var restPart = part{
	rows: func(int) []row.Row {
		const after = "real-time scanning of the whole host, after a full scan of it and comparing all anew with " +
			"another database of all advisories of SHARED"
		return []row.Row{
			{
				Name: rowIdle, What: "processor time of an idle service", Unit: "ticks", Target: 0, Need: 1,
				How: fmt.Sprintf(
					"whole ones of 10 ms by the clock of the process, in %s: %s; nobody asks the service meanwhile, "+
						"and others use no more than %.0f %% of a core", idleTime, after, 100*quiet),
			},
			{
				Name: rowAnon, What: "memory of an idle service that is no file's", Unit: "MB", Target: 25, Digits: 1,
				Need: 1, How: "RssAnon at the end of the same minute",
			},
			{
				Name: rowResident, What: "memory of an idle service", Unit: "MB", Target: 40, Digits: 1, Need: 1,
				How: "VmRSS at the same moment",
			},
		}
	},
	measure: func(ctx context.Context, b *bench) error {
		s, err := b.ready(ctx)
		if err != nil {
			return err
		}
		u, err := s.rest(ctx, b)
		switch {
		case s.figures.Rest == (memory{}):
			return err
		case err != nil: // the memory counts on a machine that is not quiet, too
			b.Spoil(err, rowIdle)
		default:
			b.Add(rowIdle, float64(u.whole))
			b.Note(rowIdle, "%s", u)
		}
		b.Add(rowAnon, s.figures.Rest.Anon)
		b.Note(rowAnon, "%d packages, %d vulnerabilities", s.figures.Packages, s.figures.Vulnerabilities)
		b.Add(rowResident, s.figures.Rest.Resident)
		b.Note(rowResident, "at most %.1f MB in the full scan and %.1f MB while all was compared", s.figures.ScanMB,
			s.figures.CompareMB)
		return nil
	},
}

// rest leaves a service alone and looks at what that costs.
func (s *stage) rest(ctx context.Context, b *bench) (spent, error) {
	if err := s.calm(ctx); err != nil {
		return spent{}, err
	}
	if err := pause(ctx, settle); err != nil {
		return spent{}, err
	}
	u, err := b.watchQuiet(ctx, s.service, idleTime)
	var failed error
	if s.figures.Rest, failed = memoryOf(s.process.PID()); err == nil {
		s.figures.IdleTicks = &u.whole
	}
	b.Say("at rest: %.1f MB of no file, %.1f MB in all", s.figures.Rest.Anon, s.figures.Rest.Resident)
	return u, errors.Join(err, failed)
}
