// Command query opens a vulnerability database, matches packages against it once, and prints the
// resource usage as JSON.
//
//	go run ./test/bench/scan/query DATABASE PACKAGES
//
// It does not scan: packages come from a file that the benchmark wrote.
//
// Invariant: only opening and matching are measured, in a process that has done neither before.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Answer is what the benchmark reads.
type Answer struct {
	OpenMS, MatchMS float64
	BeforeMB        float64 // of anonymous memory, before the matching
	MostMB          float64 // and the maximum during or after it
	Findings        int
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: ask DATABASE PACKAGES")
	}
	packages, err := read(args[1])
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // frees the memory used to read the packages
	var a Answer
	began := time.Now()
	db, err := vulndb.Open(args[0])
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // read only
	a.OpenMS = milliseconds(time.Since(began))
	if a.BeforeMB, err = anonymous(); err != nil {
		return err
	}
	most := watch()
	began = time.Now()
	r, err := match.Match(context.Background(), db, packages, match.Options{})
	a.MatchMS = milliseconds(time.Since(began))
	if err != nil {
		return err
	}
	a.MostMB = most()
	a.Findings = len(r.Findings)
	return json.NewEncoder(os.Stdout).Encode(a)
}

func read(path string) ([]catalog.Package, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var packages []catalog.Package
	return packages, json.Unmarshal(raw, &packages)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// watch samples the memory of this process until the returned function is called, which takes a
// last sample and returns the maximum.
func watch() (most func() float64) {
	stop, found := make(chan struct{}), make(chan float64)
	go func() {
		var top float64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for done := false; !done; {
			select {
			case <-tick.C:
			case <-stop:
				done = true
			}
			if now, err := anonymous(); err == nil {
				top = max(top, now)
			}
		}
		found <- top
	}()
	return func() float64 { close(stop); return <-found }
}

// anonymous returns the anonymous memory of this process, in MB.
func anonymous() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("the system does not tell RssAnon")
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	return kb / 1024, err
}
