package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// IndexPiece says what a piece is of an index that comes in several.
type IndexPiece struct {
	Root string // of the whole index
	Off  int64
	Of   int64 // bytes of the whole index
}

// PutIndexPiece receives a piece of an index; with the last one the index is received. Pieces come in order, and
// each may be sent again. They are not synced: after a crash they are sent anew.
func (r *Registry) PutIndexPiece(ctx context.Context, session, file string, p IndexPiece, body io.Reader) (err error) {
	defer full(&err)
	if p.Of > blob.MaxIndex || p.Off < 0 || p.Off >= p.Of {
		return farm.Invalid("off", "a piece at %d of an index of %d bytes is not possible, which has %d at most", p.Off, p.Of, blob.MaxIndex)
	}
	_, u, err := r.openFile(session, file)
	if err == nil {
		err = r.mayGrow()
	}
	if err != nil {
		return err
	}
	piece, err := io.ReadAll(io.LimitReader(body, p.Of-p.Off))
	if err != nil {
		return badPart(err)
	}
	whole, err := r.keepPiece(u, p, piece)
	if err != nil || whole == nil {
		return err
	}
	err = r.PutIndex(ctx, session, file, p.Root, bytes.NewReader(whole))
	if farm.CodeOf(err) == farm.CodeInvalid {
		// Pieces of two indexes are mixed: the client reads the state and sends all of it again.
		return farm.Errorf(farm.CodeConflict, "The pieces of the index of %s do not fit together: send them again", file)
	}
	return err
}

// keepPiece writes a piece behind those that are there, and gives the whole index when it was the last.
func (r *Registry) keepPiece(u *upload, p IndexPiece, piece []byte) (whole []byte, err error) {
	u.indexing.Lock()
	defer u.indexing.Unlock()
	f, err := r.dir.Root().OpenFile(u.name(".idx.part"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("keep index: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("keep index: %w", err)
	case p.Off > st.Size():
		return nil, farm.Errorf(farm.CodeConflict, "%d bytes of the index of %s are here: send it again from its beginning", st.Size(), u.spec.Name)
	}
	if _, err := f.WriteAt(piece, p.Off); err != nil {
		return nil, fmt.Errorf("keep index: %w", err)
	}
	end := p.Off + int64(len(piece))
	if err := f.Truncate(end); err != nil || end < p.Of {
		return nil, err
	}
	whole = make([]byte, p.Of)
	_, err = f.ReadAt(whole, 0)
	return whole, err
}
