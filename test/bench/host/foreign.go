package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/test/bench/row"
)

const rowForeign = "foreign-ticks"

const (
	foreignTurns = 3
	foreignTime  = 30 * time.Second
	foreignRate  = 1000 // writes a second
	foreignOld   = 500  // files that are written again and again
)

var foreignPart = part{
	rows: func(int) []row.Row {
		return []row.Row{{
			Name: rowForeign, What: "processor time while others write", Unit: "ticks/s", Target: 1, Digits: 2,
			Need: foreignTurns,
			How: fmt.Sprintf(
				"of 10 ms, while %d files a second that hold no packages are opened, written and closed for %s, half "+
					"of them new ones (*.o), half of them one of %d whose names have no extension, as programs have",
				foreignRate, foreignTime, foreignOld),
		}}
	},
	measure: func(ctx context.Context, b *bench) error {
		s, err := b.ready(ctx)
		if err != nil {
			return err
		}
		for turn := range foreignTurns {
			if err := s.calm(ctx); err != nil {
				return err
			}
			if err := b.foreign(ctx, s, fmt.Sprintf("foreign-%d", turn)); err != nil {
				return err
			}
		}
		return nil
	},
}

// foreign is one turn.
func (b *bench) foreign(ctx context.Context, s *stage, name string) (err error) {
	w := &writer{dir: filepath.Join(b.Dir, name)}
	defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
	if err := w.prepare(); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	look, err := open(s.process.PID())
	if err != nil {
		return err
	}
	if err := w.write(ctx, foreignTime); err != nil {
		return err
	}
	u, err := look.close()
	if err != nil {
		return err
	}
	rate := float64(w.count) / u.wall.Seconds()
	b.Say("%.0f foreign writes a second: %s", rate, u)
	if rate < 0.98*foreignRate {
		return fmt.Errorf("only %.0f files a second could be written", rate)
	}
	b.Add(rowForeign, float64(u.ticks)/u.wall.Seconds())
	return nil
}

// writer writes files that no scanner wants.
type writer struct {
	dir   string
	count int
}

const foreignDirs = 20

func (w *writer) prepare() error {
	for i := range foreignDirs {
		if err := os.MkdirAll(filepath.Join(w.dir, fmt.Sprint(i)), 0o755); err != nil {
			return err
		}
	}
	for i := range foreignOld {
		if err := w.one(fmt.Sprintf("data-%d", i), i); err != nil {
			return err
		}
	}
	w.count = 0
	return nil
}

// write writes as many as are due, a hundred times a second.
func (w *writer) write(ctx context.Context, d time.Duration) error {
	began := time.Now()
	for time.Since(began) < d {
		for due := int(time.Since(began).Seconds() * foreignRate); w.count < due; {
			name, i := fmt.Sprintf("data-%d", w.count/2%foreignOld), w.count/2%foreignOld
			if w.count%2 == 1 {
				name, i = fmt.Sprintf("new-%d.o", w.count), w.count
			}
			if err := w.one(name, i); err != nil {
				return err
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) one(name string, i int) error {
	w.count++
	return os.WriteFile(filepath.Join(w.dir, fmt.Sprint(i%foreignDirs), name), []byte("some bytes\n"), 0o600)
}
