package layout

import (
	"errors"
	"path"
)

// Remote is a shared storage that a Dir is a local copy of. Its writes decide, and the Dir has the same content
// after them. Objects in a bucket are one.
type Remote interface {
	// PutVersion stores what a version has in addition to its layers. A following PutTemplate names it. config is JSON.
	PutVersion(id string, v *Version, config, nvram []byte) error
	// PutTemplate commits a template, whose template.json has the text raw, in place of the one that the Dir has. After
	// ErrGenerationConflict the Dir has the current one. What was stored for versions that the template no longer has
	// may be removed.
	PutTemplate(t *Template, raw []byte) error
	// TrashTemplate makes a template invisible until PurgeTrash removes it. stamp is the time in epoch nanoseconds.
	TrashTemplate(id string, stamp int64) error
	// PurgeTrash removes templates that were moved to the trash before an epoch nanosecond.
	PurgeTrash(before int64) error
	// PutFile stores a file of the Dir that another registry needs after it becomes the owner.
	PutFile(name string, data []byte) error
	// RemoveFile removes such a file; a missing one is not an error.
	RemoveFile(name string) error
}

// SetRemote makes the Dir a local copy of a shared storage. It must be called before the first write.
func (d *Dir) SetRemote(r Remote) { d.remote = r }

// IsLocalCopy reports whether the Dir is a local copy of a shared storage.
func (d *Dir) IsLocalCopy() bool { return d.remote != nil }

// saveRemote commits a template.json to the shared storage and then replaces the local one. The local file is
// complete before the commit, so that a full disk prevents it.
func (d *Dir) saveRemote(t *Template, name string, raw []byte) error {
	temp := name + tempSuffix
	err := d.CreateFile("template", temp, raw)
	if err == nil {
		err = d.remote.PutTemplate(t, raw)
	}
	if err != nil {
		_ = d.root.Remove(temp) // best effort: the next start removes leftovers too
		return err
	}
	return d.RenameInDir("template", temp, name)
}

// WriteShared is WriteFile for a file that a shared storage has, too.
func (d *Dir) WriteShared(label, name string, data []byte) error {
	if d.remote != nil {
		if err := d.remote.PutFile(name, data); err != nil {
			return err
		}
	}
	return d.WriteFile(label, name, data)
}

// RemoveShared is RemoveAll for a file that a shared storage has, too.
func (d *Dir) RemoveShared(label, name string) error {
	err := d.RemoveAll(label, name)
	if d.remote != nil {
		err = errors.Join(err, d.remote.RemoveFile(name))
	}
	return err
}

// shareFile stores a complete file of the Dir in the shared storage.
func (d *Dir) shareFile(name string) error {
	if d.remote == nil {
		return nil
	}
	raw, err := d.readFile(name, maxSharedBytes)
	if err != nil {
		return err
	}
	return d.remote.PutFile(name, raw)
}

// maxSharedBytes bounds a file that is read to be shared, in bytes.
const maxSharedBytes = 256 << 20

// TemplateFilePath is the path of a template.json relative to the storage.
func TemplateFilePath(id string) string { return path.Join(TemplatesDir, id, templateFile) }

// HasVersionFiles reports whether the files of a version are complete.
func (d *Dir) HasVersionFiles(id string, v *Version) bool { return d.CheckVersion(id, v) == nil }

// RestoreVersion writes the files of a version that a shared storage has. config is JSON.
func (d *Dir) RestoreVersion(id string, v *Version, config, nvram []byte) error {
	local := &Dir{SafeDir: d.SafeDir, base: d.base}
	if err := local.StageVersion(id, v, config, nvram); err != nil {
		return err
	}
	return local.CommitVersion(id, v)
}
