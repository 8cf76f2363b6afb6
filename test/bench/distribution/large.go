package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// The second disk of the large template.
const (
	largeSize    = 52 << 30
	clusterBits  = 12
	clusterSize  = 1 << clusterBits
	poolClusters = 256 // of noise
	l2Entries    = clusterSize / 8
	l1Entries    = largeSize / clusterSize / l2Entries
	mebibyte     = 1 << 20
)

// writeLargeDisk writes a qcow2 image whose clusters all show one of a few clusters of noise: each MB of the disk has a
// pair of them that no other has. It takes little space, here and in the registry, while the disk has no hole. Its
// reference counts are missing.
func writeLargeDisk(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const (
		l1At   = clusterSize
		poolAt = l1At + (l1Entries*8+clusterSize-1)/clusterSize*clusterSize
		l2At   = poolAt + poolClusters*clusterSize
	)
	header := make([]byte, l1At)
	be := binary.BigEndian
	copy(header, "QFI\xfb")
	be.PutUint32(header[4:], 3)
	be.PutUint32(header[20:], clusterBits)
	be.PutUint64(header[24:], largeSize)
	be.PutUint32(header[36:], l1Entries)
	be.PutUint64(header[40:], l1At)
	be.PutUint32(header[96:], 4)    // reference counts of 16 bits
	be.PutUint32(header[100:], 104) // length of the header

	w := bufio.NewWriterSize(f, mebibyte)
	_, _ = w.Write(header)
	for i := range uint64(l1Entries) {
		_ = binary.Write(w, be, l2At+i*clusterSize|copied)
	}
	_, _ = w.Write(make([]byte, poolAt-l1At-l1Entries*8))
	noise := rand.NewChaCha8([32]byte{1})
	pool := make([]byte, poolClusters*clusterSize)
	_, _ = noise.Read(pool)
	_, _ = w.Write(pool)
	entry := func(cluster uint64) []byte { return be.AppendUint64(nil, poolAt+cluster*clusterSize|copied) }
	for i := range uint64(largeSize / clusterSize) {
		mb := i / (mebibyte / clusterSize)
		cluster := mb % poolClusters
		if i%2 == 1 {
			cluster = mb / poolClusters
		}
		_, _ = w.Write(entry(cluster))
	}
	return w.Flush()
}

// copied marks an entry of a table as the only one of its cluster. Readers ignore it.
const copied = 1 << 63

// pushLarge pushes the guest with a second disk.
func (s *stage) pushLarge(ctx context.Context, second string) (string, error) {
	const config = `{"ram":"1G","cpu":{"cores":1},` +
		`"hard_drives":[{"file":"system.raw","format":"raw"},{"file":"data.raw","format":"raw"}]}`
	return s.push(ctx, "debian-60", config,
		transfer.PushFile{Name: "system.raw", Path: s.guest, Kind: api.FileDisk, Format: "raw"},
		transfer.PushFile{Name: "data.raw", Disk: &diskfile.Disk{Path: second, Format: "qcow2"}, Kind: api.FileDisk})
}
