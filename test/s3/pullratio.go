package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	// comparedDisk is the size of the disk whose pulls are compared.
	comparedDisk = 256 << 20
	// minPullRatio is the minimum rate of pulls from the bucket, as a share of that from a disk.
	minPullRatio = 0.8
)

// pullTimes are the durations of pulls by their place in a pair: the first pull of a pair writes to a busier disk.
type pullTimes [2][]time.Duration

// mean returns the mean of the medians of both places.
func (p pullTimes) mean() time.Duration { return (median(p[0]) + median(p[1])) / 2 }

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

// casePullRatio compares pulls from a registry in a bucket with those from one on disk, through one wire of 1 Gbit/s
// that both share. The rate over the bare loopback interface, where the processors of this machine are the limit, is
// printed, too.
func casePullRatio(ctx context.Context, s *stage) (string, error) {
	w := &wire{}
	required, wired, err := s.comparePulls(ctx, "wire", w.connect)
	if err = errors.Join(err, w.close()); err != nil {
		return "", err
	}
	if err := errors.Join(s.stopAll(), s.reset(ctx)); err != nil {
		return "", err
	}
	_, loopback, err := s.comparePulls(ctx, "loopback", func(server string) (string, error) { return server, nil })
	evidence := "1 Gbit/s: " + wired + fmt.Sprintf(" (>= %.1f); loopback: ", minPullRatio) + loopback
	if err == nil && required < minPullRatio {
		err = errors.New("pulls from the bucket are too slow")
	}
	return evidence, err
}

// comparePulls measures pulls in turns. connect returns the address at which nodes reach a server.
func (s *stage) comparePulls(
	ctx context.Context, name string, connect func(server string) (string, error),
) (ratio float64, evidence string, err error) {
	d, err := s.makeDisk(70, comparedDisk)
	if err != nil {
		return 0, "", err
	}
	var clients [2]*transfer.Client
	for i, kind := range []string{"s3", "disk"} {
		if clients[i], err = s.serveForPulls(ctx, name+"-"+kind, kind, d, connect); err != nil {
			return 0, "", err
		}
		defer clients[i].Close()
	}
	var pulls [2]pullTimes
	for round := range s.options.pairs {
		for place := range clients {
			i := (round + place) % len(clients)
			took, err := s.timePull(ctx, clients[i], d)
			if err != nil {
				return 0, "", err
			}
			pulls[i][place] = append(pulls[i][place], took)
		}
	}
	bucket, disk := pulls[0].mean(), pulls[1].mean()
	ratio = disk.Seconds() / bucket.Seconds()
	s.figures[name+"_bucket_seconds"], s.figures[name+"_disk_seconds"] = bucket.Seconds(), disk.Seconds()
	s.figures[name+"_rate_of_disk"] = ratio
	return ratio, fmt.Sprintf("medians of %d pulls of %d MiB: bucket %.2f s, disk %.2f s, rate %.2f of the disk's",
		s.options.pairs, comparedDisk>>20, bucket.Seconds(), disk.Seconds(), ratio), nil
}

// serveForPulls starts a registry with the disk as its version v1, and returns a client for pulls.
func (s *stage) serveForPulls(
	ctx context.Context, name, kind string, d diskFile, connect func(server string) (string, error),
) (*transfer.Client, error) {
	settings := map[string]string{}
	if kind == "s3" { // nodes read from the server itself
		address, err := connect(s.address)
		if err != nil {
			return nil, err
		}
		settings["SVC_BACKEND_S3_ENDPOINT"] = "http://" + address
		settings["SVC_BACKEND_S3_UPLOAD_PART_SIZE"] = "20971520"
	}
	r, err := s.start(ctx, name, kind, settings)
	if err != nil {
		return nil, err
	}
	if err := r.push(ctx, idA, "v1", d); err != nil {
		return nil, err
	}
	address, err := connect(strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		return nil, err
	}
	return transfer.New(transfer.Options{BaseURL: "http://" + address})
}

// timePull pulls version v1 and returns how long the pull took, without the comparison of its disk.
func (s *stage) timePull(ctx context.Context, c *transfer.Client, d diskFile) (time.Duration, error) {
	dir, err := os.MkdirTemp(s.caseDir, "pull-")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	_, err = c.Pull(ctx, transfer.PullOptions{Ref: transfer.VersionRef{ID: idA, Tag: "v1"}, Dir: dir})
	took := time.Since(began)
	if err == nil {
		err = compareDisk(filepath.Join(dir, "disk.img"), d)
	}
	return took, errors.Join(err, os.RemoveAll(dir))
}
