// Package watch reports changes on this host, so that a scanner need not walk all files again:
// files with wanted names, new directories, and what was removed.
//
// It knows no packages, reads no file's content and does not interpret the changes it reports. On
// Linux the kernel reports changes of whole file systems (fanotify), or without privileges of the
// package directories (inotify); on a Mac FSEvents does. Where none of them reports, directories
// are polled once a minute. FSEvents was built and vetted for the Mac, and its decisions are tested
// here, but it has never run on one.
//
// Invariant: from the return of Open on every change of a wanted file below the roots is reported,
// by its path or as a directory to walk again, or Mounts describes why it is not; waiting changes
// take bounded memory. A mount that is removed before it was noticed is not reported.
package watch
