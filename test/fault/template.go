package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/test/rig"
)

// pushTiny puts a template with an empty disk into the registry, for VMs that are
// simulated and never read it.
func (s *scene) pushTiny(ctx context.Context) (id string, err error) {
	return s.cloud.Push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1", "--ram", "256M")
}

// The templates of pushNoise, and the tag of every version that a run pushes itself.
const (
	noiseSize = 16 << 20
	seedTag   = "v1"
)

// pushNoise puts n templates into the registry whose disks are noise: pulling one takes
// a moment, so that kills meet pulls.
func (s *scene) pushNoise(ctx context.Context, n int) (ids []string, err error) {
	for i := range n {
		name := fmt.Sprintf("noise%d", i)
		disk := filepath.Join(s.dir, name+".img")
		noise := make([]byte, noiseSize)
		for at := 0; at < len(noise); at += 8 {
			binary.LittleEndian.PutUint64(noise[at:], s.rng.Uint64())
		}
		if err := os.WriteFile(disk, noise, 0o600); err != nil {
			return nil, err
		}
		id, err := s.cloud.Push(ctx, name, "import", disk, "--format", "raw", "--name", name, "--cpu", "1", "--ram",
			"256M")
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// finish ends the programs and keeps the history. QEMU processes that are left are
// killed last, after they were counted.
func (s *scene) finish() error {
	errs := []error{s.close(), s.history.write(filepath.Join(s.dir, "history.jsonl"))}
	if s.memory != "" {
		errs = append(errs, os.RemoveAll(s.memory))
	}
	left, err := rig.QEMUs(s.dir)
	errs = append(errs, err)
	for _, q := range left {
		_, err := q.Kill(s.dir)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
