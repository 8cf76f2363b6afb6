// Package watch says what changed on this host, so that nobody has to look everywhere
// again: files whose names are wanted, directories that came, and what went away.
//
// It knows no packages, reads no file's content and decides nothing about what it tells.
// On Linux the kernel tells of whole file systems (fanotify), or without privileges of the
// folders where packages lie (inotify); on a Mac FSEvents does. Where nothing tells, directories
// are looked at once a minute. FSEvents was built and vetted for the Mac, and its decisions
// are tested here, but it has never run on one.
//
// Invariant: from the return of Open on every change of a wanted file beneath the roots is
// told, by its path or as a directory to look at again, or Mounts says why it is not; what
// waits to be told takes bounded memory. A mount that goes before it was noticed is not told.
package watch
