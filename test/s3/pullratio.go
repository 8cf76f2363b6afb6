package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// comparedDisk is the size of the disk whose pulls are compared.
	comparedDisk = 256 << 20
	// minPullRatio is the minimum rate of pulls from the bucket, as a share of that from a disk.
	minPullRatio = 0.8
)

// casePullRatio compares pulls from a registry in a bucket with those from one on disk, on the same wire: the loopback
// interface of this machine, in turns.
func casePullRatio(ctx context.Context, s *stage) (string, error) {
	d, err := s.makeDisk(70, comparedDisk)
	if err != nil {
		return "", err
	}
	var pulls [2][]time.Duration
	var registries [2]*registryProcess
	for i, kind := range []string{"s3", "disk"} {
		settings := map[string]string{}
		if kind == "s3" { // nodes read from the server itself
			settings["SVC_BACKEND_S3_ENDPOINT"] = "http://" + s.address
			settings["SVC_BACKEND_S3_UPLOAD_PART_SIZE"] = "20971520"
		}
		if registries[i], err = s.start(ctx, kind, kind, settings); err != nil {
			return "", err
		}
		if err := registries[i].push(ctx, idA, "v1", d); err != nil {
			return "", err
		}
	}
	for range s.options.pairs {
		for i, r := range registries {
			began := time.Now()
			if err := s.pull(ctx, r, idA, "v1", d); err != nil {
				return "", err
			}
			pulls[i] = append(pulls[i], time.Since(began))
		}
	}
	bucket, disk := median(pulls[0]), median(pulls[1])
	ratio := disk.Seconds() / bucket.Seconds()
	evidence := fmt.Sprintf("median of %d pulls of %d MiB: bucket %.2f s, disk %.2f s, rate %.2f of the disk's (>= %.1f)",
		s.options.pairs, comparedDisk>>20, bucket.Seconds(), disk.Seconds(), ratio, minPullRatio)
	if ratio < minPullRatio {
		return evidence, errors.New("pulls from the bucket are too slow")
	}
	return evidence, nil
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
