package cachejob

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// jobFile is the content of the file: the unfinished cache jobs. The controller sends everything
// again to a node without it; it is stored so that pulls continue also while the controller is
// unavailable.
type jobFile struct {
	Node      string         `json:"node"`
	CacheJobs []api.CacheJob `json:"errands"`
}

// loadJobs reads the cache jobs of an earlier agent.
func (r *Runner) loadJobs() []api.CacheJob {
	if r.opts.StoreFile == "" {
		return nil
	}
	raw, err := os.ReadFile(r.opts.StoreFile)
	var b jobFile
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.opts.Logger.Error("cache job file cannot be read; the controller sends its jobs again", "error",
				err)
		}
		return nil
	}
	if b.Node != r.opts.NodeID {
		return nil
	}
	return b.CacheJobs[:min(len(b.CacheJobs), maxCacheJobs)]
}

// saveJobs writes the unfinished cache jobs. On a full disk it fails without harm: the controller sends
// everything again to the next agent.
func (r *Runner) saveJobs() {
	if r.opts.StoreFile == "" {
		return
	}
	r.saveMu.Lock()
	defer r.saveMu.Unlock()
	b := jobFile{Node: r.opts.NodeID, CacheJobs: []api.CacheJob{}}
	r.mu.Lock()
	for _, e := range r.jobs {
		if !e.isFinished() {
			b.CacheJobs = append(b.CacheJobs, e.order)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(b.CacheJobs, func(x, y api.CacheJob) int { return strings.Compare(x.ID, y.ID) })
	raw, err := json.Marshal(b)
	if err == nil {
		err = datadir.WriteFile(r.opts.StoreFile, raw)
	}
	if err != nil {
		r.opts.Logger.Warn("writing the cache job file failed", "error", err)
	}
}
