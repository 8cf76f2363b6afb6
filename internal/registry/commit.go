package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// CommitPush publishes the version of a push. It moves every layer into the store, then reverts the requested
// versions and adds the new one in one write of template.json. A repeated call returns the same result.
func (r *Registry) CommitPush(ctx context.Context, id string, c api.PushCommit) (_ api.PushResult, err error) {
	defer setDiskFull(&err)
	s, err := r.useSession(id)
	if err != nil {
		if done := r.resultOfSession(id); done != nil {
			return *done, nil
		}
		return api.PushResult{}, err
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if done := s.committedResult(); done != nil {
		return *done, nil
	}
	if err := s.checkOpen(); err != nil {
		return api.PushResult{}, err
	}
	files := make([]layout.File, 0, len(s.uploads))
	for _, u := range s.uploads {
		var f layout.File
		err := r.writeWithReserve(func() (err error) {
			f, err = r.commitFile(ctx, s, u, c.Roots[u.pushFile.Name])
			return err
		})
		if err != nil {
			return api.PushResult{}, err
		}
		files = append(files, f)
	}
	var result api.PushResult
	err = r.writeWithReserve(func() (err error) {
		result, err = r.publishVersion(ctx, s, files, c.Gen)
		return err
	})
	if err != nil {
		return api.PushResult{}, err
	}
	r.finishSession(s, &result)
	if err := r.dropUploads(ctx, id); err != nil {
		r.log.Warn("removing the uploads of a finished push failed", "session", id, "error", err)
	}
	r.log.Info("version published", "template", result.ID, "tag", result.Tag, "version", result.Number, "content",
		result.ContentID)
	return result, nil
}

// commitFile stores a file's layer and pins it.
func (r *Registry) commitFile(ctx context.Context, s *session, u *upload, rootText string) (layout.File, error) {
	f := layout.File{Name: u.pushFile.Name, Kind: u.pushFile.Kind, Format: u.pushFile.Format, Size: u.pushFile.Size}
	root, err := blob.ParseDigest(rootText)
	if err != nil {
		return f, farm.Invalid("roots", "the digest of %s is missing or not 64 hex digits", u.pushFile.Name)
	}
	if u.isStored() && rootText == u.pushFile.Root {
		err := r.adoptChain(ctx, u, &f)
		return f, err
	}
	if u.isStored() && u.pushFile.Parent != "" { // the parent's chain was not kept
		return f, farm.Invalid("roots", "the digest of %s is not the one that the push announced", u.pushFile.Name)
	}
	var l layout.Layer
	if r.isAllowedBase(s.baseTemplates, rootText) && r.pinStored(ctx, s, root) {
		l, err = r.findStoredLayer(ctx, u, root)
	} else {
		l, err = r.completeUpload(ctx, s, u, root)
	}
	if err != nil {
		return f, err
	}
	if !u.isStored() {
		f.Layers = slices.Clone(u.parentChain)
	}
	f.Layers = append(f.Layers, l)
	if n := totalIndexBytes(f.Layers); n > blob.MaxChainIndexSize {
		return f, farm.Errorf(farm.CodeNoParent,
			"The frame indexes of the layer chain of %s would have %d MiB, which is too much: push the complete disk",
			f.Name, n/mib)
	}
	return f, nil
}

// totalIndexBytes is the total size of the layers' indexes, which a pull keeps in memory.
func totalIndexBytes(layers []layout.Layer) (sum int64) {
	for _, l := range layers {
		sum += l.IndexLength
	}
	return sum
}

// adoptChain sets a file's layers to its existing chain.
func (r *Registry) adoptChain(ctx context.Context, u *upload, f *layout.File) error {
	root, err := blob.ParseDigest(u.parentChain[len(u.parentChain)-1].Digest)
	if err != nil {
		return missingParentError(u.pushFile)
	}
	x, release, err := r.readStoredIndex(ctx, root)
	if err != nil {
		return err
	}
	defer release()
	if x.ContentSize() != u.pushFile.Size {
		return farm.Invalid("root", "digest of a disk of %d bytes, but %s has %d bytes", x.ContentSize(),
			u.pushFile.Name,
			u.pushFile.Size)
	}
	f.Layers = slices.Clone(u.parentChain)
	return nil
}

// findStoredLayer returns a layer that is stored and was not sent. It returns the errors of PutIndex when the layer
// cannot be the content of the file, which the client then has to send.
func (r *Registry) findStoredLayer(ctx context.Context, u *upload, root blob.Digest) (layout.Layer, error) {
	x, release, err := r.readStoredIndex(ctx, root)
	if err != nil {
		return layout.Layer{}, err
	}
	defer release()
	if parentString(x) != u.pushFile.Parent {
		return layout.Layer{}, missingParentError(u.pushFile)
	}
	return layerEntryOf(x), checkLayerFits(x, u.pushFile)
}

// completeUpload turns an upload into a layer file. It seals the upload, so that a part still being received cannot
// write into the layer.
func (r *Registry) completeUpload(
	ctx context.Context, s *session, u *upload, root blob.Digest,
) (_ layout.Layer, err error) {
	u.freeze()
	defer func() {
		if err != nil {
			u.unfreeze()
		}
	}()
	if err := r.recheckParts(ctx, u); err != nil {
		return layout.Layer{}, err
	}
	x, release, err := r.readReceivedIndex(ctx, u, root)
	if err != nil {
		return layout.Layer{}, err
	}
	defer release()
	if err := u.checkMatches(x); err != nil {
		return layout.Layer{}, err
	}
	if err := r.storeUpload(ctx, u.id, x); err != nil {
		return layout.Layer{}, err
	}
	if !r.pinStored(ctx, s, root) { // the collector may have been faster
		return layout.Layer{}, farm.NotFound() // the session has ended since then
	}
	return layerEntryOf(x), nil
}

// readReceivedIndex reads the index of an upload, which acceptIndex has checked.
func (r *Registry) readReceivedIndex(
	ctx context.Context, u *upload, root blob.Digest,
) (x *blob.Index, release func(), err error) {
	u.mu.Lock()
	here := !root.IsZero() && u.indexDigest == root
	u.mu.Unlock()
	if here {
		x, release, err = r.readUploadedIndex(ctx, u.filePath(indexSuffix))
	}
	switch {
	case isCorrupt(err) || errors.Is(err, fs.ErrNotExist): // treated as not received
	case err != nil:
		return nil, nil, err
	case x != nil && x.Digest() == root:
		return x, release, nil
	case x != nil:
		release()
	}
	return nil, nil, farm.Errorf(farm.CodeConflict, "The frame index of %s was not received: send it again",
		u.pushFile.Name)
}

// storeUpload makes an upload a layer of the store. It moves a damaged layer of the same name to quarantine.
func (r *Registry) storeUpload(ctx context.Context, u blob.Upload, x *blob.Index) error {
	root := x.Digest()
	defer r.layerMutexes.lock(root)()
	r.mu.Lock()
	damaged, known := r.badLayers[root] != "" && r.storedLayers[root] != nil, r.storedLayers[root] != nil
	r.mu.Unlock()
	if !known { // an operator may have begun to copy it in
		_, err := r.readIndex(ctx, root)
		damaged = isCorrupt(err)
	}
	if damaged {
		if err := r.store.Quarantine(ctx, root, r.opts.Now()); err != nil {
			return err
		}
	}
	if err := r.store.CompleteUpload(ctx, u, x); err != nil {
		return err
	}
	r.mu.Lock()
	r.storedLayers[root] = &storedLayer{size: x.FileSize()}
	delete(r.badLayers, root)
	r.mu.Unlock()
	if damaged {
		r.log.Info("damaged layer replaced by a new upload", "layer", root.String())
		r.saveScrub()
	}
	return nil
}

// readIndex reads the index of a layer that is there.
func (r *Registry) readIndex(ctx context.Context, root blob.Digest) (*blob.Index, error) {
	f, err := r.store.Open(ctx, root)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l, err := blob.OpenLayer(f, st.Size(), root)
	if err != nil {
		return nil, err
	}
	return l.Index(), nil
}

// publishVersion is the commit point.
func (r *Registry) publishVersion(
	ctx context.Context, s *session, files []layout.File, gen *int64,
) (api.PushResult, error) {
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	req := s.request
	if gen != nil {
		req.Gen = gen
	}
	cur := r.snapshot.Load().findTemplate(s.templateID)
	if done := versionOfSession(cur, s.id); done != nil {
		return pushResult(cur, done), nil
	}
	next, err := planTemplate(cur, req, s.templateID)
	if err != nil {
		return api.PushResult{}, err
	}
	config, err := configWithIdentity(req.Config, next)
	if err != nil {
		return api.PushResult{}, err
	}
	if cur == nil {
		if err := r.prepareReusedID(ctx, next.ID); err != nil {
			return api.PushResult{}, err
		}
	}
	now := r.opts.Now().Unix()
	next.Versions = append(next.Versions, layout.Version{
		Tag: req.Tag, Number: len(next.Versions), Description: req.Description, Arch: req.Arch, Files: files,
		NVRAM: len(req.NVRAM) > 0, Created: now, LastPush: now, Session: s.id,
		ContentID: computeContentID(config, files, req.NVRAM),
	})
	v := &next.Versions[len(next.Versions)-1]
	if err := r.dir.StageVersion(next.ID, v, config, req.NVRAM); err != nil {
		return api.PushResult{}, err
	}
	if err := r.saveTemplate(next); err != nil {
		return api.PushResult{}, err
	}
	r.metrics.pushes.Inc()
	r.forgetDeletion(next.ID)
	if err := r.dir.PruneTemplate(next); err != nil {
		r.log.Warn("removing leftovers from a template directory failed", "template", next.ID, "error", err)
	}
	return pushResult(next, v), nil
}

// versionOfSession finds the version that a session made.
func versionOfSession(t *layout.Template, session string) *layout.Version {
	if t == nil {
		return nil
	}
	for i := range t.Versions {
		if t.Versions[i].Session == session {
			return &t.Versions[i]
		}
	}
	return nil
}

func pushResult(t *layout.Template, v *layout.Version) api.PushResult {
	return api.PushResult{
		ID: t.ID, Name: t.Name, Tag: v.Tag, Number: v.Number, ContentID: v.ContentID, Gen: t.Gen,
		Size: v.Size(),
	}
}

// planTemplate returns the template that a push will write, without the new version. cur is the current template, nil
// without one. It is pure: negotiation calls it early, the commit decides by it.
func planTemplate(cur *layout.Template, req api.PushRequest, id string) (*layout.Template, error) {
	if cur == nil {
		switch {
		case req.MustExist:
			return nil, farm.NotFound()
		case req.Name == "":
			return nil, farm.Invalid("name", "is required: the registry has no template %s", id)
		case req.Gen != nil && *req.Gen != 0:
			return nil, generationConflict(*req.Gen, 0)
		}
		return &layout.Template{ID: id, Name: req.Name, Arch: req.Arch, Gen: 1}, nil
	}
	if req.Gen != nil && *req.Gen != cur.Gen {
		return nil, generationConflict(*req.Gen, cur.Gen)
	}
	if req.Arch != "" && cur.Arch != "" && req.Arch != cur.Arch {
		return nil, farm.Refused("Architecture mismatch: template %s is for %s, the pushed VM is for %s", cur.Name,
			cur.Arch, req.Arch)
	}
	next := nextGeneration(cur)
	if next.Arch == "" {
		next.Arch = req.Arch
	}
	if req.Revert != nil {
		if i, err := findVersion(next.Versions, VersionRef{Tag: req.Revert.Tag}); err == nil {
			next.Versions = next.Versions[:i:i]
		}
	}
	if _, err := findVersion(next.Versions, VersionRef{Tag: req.Tag}); err == nil {
		return nil, farm.Refused("Template %s already has the tag %s", cur.Name, req.Tag)
	}
	return next, nil
}

func generationConflict(want, have int64) error {
	return farm.Errorf(farm.CodeConflict,
		"Template was changed concurrently: it has generation %d, the push expects %d",
		have, want)
}

// configWithIdentity sets the identity of the template in the configuration.
func configWithIdentity(raw json.RawMessage, t *layout.Template) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	for key, value := range map[string]string{"uuid": t.ID, "name": t.Name} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		object[key] = text
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return layout.CanonicalConfig(raw)
}

// computeContentID names the content of a version. It does not depend on tag, number or time, nor on the form of the
// layer chains.
func computeContentID(config []byte, files []layout.File, nvram []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "buildyard version 1\nconfig %x\n", sha256.Sum256(config))
	for _, f := range files {
		fmt.Fprintf(h, "%s %q %q %d %s\n", f.Kind, f.Name, f.Format, f.Size, f.ChainID())
	}
	if len(nvram) > 0 {
		fmt.Fprintf(h, "nvram %x\n", sha256.Sum256(nvram))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func isCorrupt(err error) bool { return errors.Is(err, blob.ErrCorrupt) }

func isTruncated(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
