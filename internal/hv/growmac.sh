# In a macOS guest, makes the container of the root volume fill its disk, and ends. The first line is
# recovery_behind=, the sentence for a disk whose recovery partition is in the way. Needs sudo without a password.
grow_macos() {
  give_up() {
    echo "$*" >&2
    exit 1
  }
  # change runs diskutil as root and answers yes to its questions.
  change() { said=$(yes 2>/dev/null | LC_ALL=C sudo -n diskutil "$@" 2>&1); }
  first_error() { printf '%s\n' "$said" | grep -i -m 1 error || printf '%s\n' "$said" | tail -n 1; }

  store=$(LC_ALL=C diskutil info / </dev/null 2>/dev/null | sed -n 's/^ *APFS Physical Store: *//p')
  store=${store%% *}
  case "$store" in
  disk[0-9]*s[0-9]*) ;;
  *) store=disk0s2 ;;
  esac
  disk=${store%s*}

  # The second copy of the partition table is at the old end of the disk.
  change repairDisk "$disk" || give_up "diskutil repairDisk $disk: $(first_error)"

  # What follows the container: the types of partitions, and "free".
  behind=$(LC_ALL=C diskutil list "$disk" </dev/null 2>/dev/null | awk -v store="$store" '
    found && /\(free space\)/ { print "free" }
    found && $NF != "-" && NF > 1 { print $2 }
    $NF == store { found = 1 }')
  # shellcheck disable=SC2086
  case $(echo $behind) in
  *Apple_APFS_Recovery*free) give_up "$recovery_behind" ;;
  ?*' free') give_up "the disk cannot grow: another partition is behind the system's container" ;;
  '' | free) ;;
  *) exit 0 ;; # no free space: the disk is in use to its end
  esac

  change apfs resizeContainer "$store" 0 && exit 0
  case "$said" in
  *-69743*) exit 0 ;; # the size is not different
  esac
  give_up "diskutil apfs resizeContainer $store 0: $(first_error)"
}
[ "$(uname 2>/dev/null)" != Darwin ] || grow_macos

