package gosymbols

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// maxNameBytes limits one name: those of generic functions have their types.
const maxNameBytes = 64 << 10

// Function is a function or method of a package.
type Function struct {
	Package string // import path; "main" for the program's main package
	// Name is "Parse", or "Decoder.Decode" of a method. Pointers and type arguments are left out.
	Name string
}

// Each calls visit with every function of a program. The program is the content of an ELF, Mach-O or PE file that is
// not universal.
func Each(ctx context.Context, r io.ReaderAt, visit func(Function)) error {
	names, err := openNames(ctx, r)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(names, maxNameBytes)
	hasRuntime, isCutOff, tooLong := false, false, 0
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		name, err := in.ReadSlice(0)
		if errors.Is(err, bufio.ErrBufferFull) {
			tooLong++
			name, err = nil, skipName(in)
		}
		if errors.Is(err, io.EOF) {
			isCutOff = len(name) > 0
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if f, ok := parseName(bytes.TrimSuffix(name, []byte{0})); ok {
			hasRuntime = hasRuntime || f.Package == "runtime"
			visit(f)
		}
	}
	end, err := names.Seek(0, io.SeekCurrent)
	switch {
	case err != nil || isCutOff || end != names.Size():
		return fmt.Errorf("%w: it is cut off", ErrDamaged)
	case !hasRuntime: // which every program has
		return fmt.Errorf("%w: it has no function of the runtime", ErrDamaged)
	case tooLong > 0:
		return fmt.Errorf("%w: %d names are too long", ErrDamaged, tooLong)
	}
	return nil
}

// skipName skips the rest of a name.
func skipName(in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice(0)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// parseName splits a name of the table; false for what belongs to no package, such as code that the compiler made.
func parseName(b []byte) (Function, bool) {
	if bytes.HasPrefix(b, []byte("go:")) || bytes.HasPrefix(b, []byte("type:")) {
		return Function{}, false
	}
	name := withoutTypeArguments(string(b))
	slash := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[slash:], '.')
	if dot < 0 {
		return Function{}, false
	}
	f := Function{Package: name[:slash+dot], Name: name[slash+dot+1:]}
	if strings.Contains(f.Package, "%") { // the compiler escapes dots of the last element, and others
		path, err := url.PathUnescape(f.Package)
		if err != nil {
			return Function{}, false
		}
		f.Package = path
	}
	if rest, isPointer := strings.CutPrefix(f.Name, "(*"); isPointer {
		receiver, method, ok := strings.Cut(rest, ")")
		if !ok {
			return Function{}, false
		}
		f.Name = receiver + method
	}
	return f, f.Package != "" && f.Name != ""
}

// withoutTypeArguments removes the type arguments of a function or a receiver: "F[int]", "(*T[...]).M".
func withoutTypeArguments(name string) string {
	from, to := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
	if from < 0 || to < from {
		return name
	}
	return name[:from] + name[to+1:]
}
