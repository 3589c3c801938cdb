// Files: plain and gzip, whole or refused, replaced at once.
#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/check.h"

namespace heterog {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_THAT(error.kind(), testing::AnyOf(ErrorKind::kInput, ErrorKind::kVerification));
    return error.what();
  }
  return "no error";
}

class FileTest : public testing::Test {
 protected:
  FileTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / ("heterog_file_" + std::string(test->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~FileTest() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  std::string content = "text\n";
  content.append(3'000'000, '\0');
  write_file(path("plain"), content);
  write_gzip_file(path("packed"), content);
  EXPECT_EQ(read_file(path("plain")), content);
  EXPECT_EQ(read_file(path("packed")), content);
  EXPECT_LT(fs::file_size(path("packed")), 10'000u);
  write_file(path("plain"), "");
  EXPECT_EQ(read_file(path("plain")), "");
  EXPECT_EQ(entries(), 2u);  // nothing temporary stays
}

TEST_F(FileTest, SaysWhatIsWrongWithAPath) {
  EXPECT_THAT(error_of([&] { read_file(path("none")); }),
              HasSubstr("none: cannot open: No such file or directory"));
  EXPECT_THAT(error_of([&] { read_file(folder_.string()); }),
              HasSubstr("is a folder, expected a file"));
  EXPECT_THAT(error_of([&] { write_file(path("no/such/file"), "x"); }),
              HasSubstr("no/such/file: cannot write: No such file or directory"));
  EXPECT_THAT(error_of([&] { write_file(folder_.string(), "x"); }), HasSubstr("is a folder"));
}

// Exit code 4: the arguments may be right and the disk full.
TEST_F(FileTest, WhatCannotBeWrittenIsNoWrongInput) {
  const auto code_of = [](const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return static_cast<int>(error.kind());
    }
    return 0;
  };
  for (const std::string& place : {path("no/such/file"), folder_.string()}) {
    EXPECT_EQ(code_of([&] { write_file(place, "x"); }), 4) << place;
    EXPECT_EQ(code_of([&] { append_file(place, "x"); }), 4) << place;
    EXPECT_EQ(code_of([&] { expect_writable(place); }), 4) << place;
    EXPECT_EQ(code_of([&] { read_file(place); }), 2) << place;
  }
  EXPECT_EQ(code_of([&] { write_file("/dev/full", "x"); }), 4);
  write_file(path("file"), "old");
  EXPECT_EQ(code_of([&] { make_folder(path("file/folder")); }), 4);
  expect_writable(path("file"));
  EXPECT_EQ(read_file(path("file")), "old");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_writable(path("pipe"));  // would wait for a reader if it opened it
  fs::remove(path("pipe"));
  make_folder(path("a/b"));
  EXPECT_TRUE(fs::is_directory(path("a/b")));
  EXPECT_EQ(entries(), 2u);  // nothing temporary stays
}

TEST_F(FileTest, RefusesDamagedGzip) {
  const std::string packed = gzip("some text that is long enough to be packed, packed, packed");
  for (std::size_t size = 2; size < packed.size(); ++size) {
    EXPECT_THAT(error_of([&] { gunzip(packed.substr(0, size), "f"); }),
                HasSubstr("f: damaged gzip: it ends early"))
        << size;
  }
  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(error_of([&] { gunzip(flipped, "f"); }), HasSubstr("incorrect data check"));
  EXPECT_THAT(error_of([&] { gunzip(packed + "rest", "f"); }),
              HasSubstr("f: damaged gzip: 4 bytes follow its end"));
}

TEST_F(FileTest, ReadsGzipFilesPutTogether) {
  EXPECT_EQ(gunzip(gzip("one ") + gzip("two"), "f"), "one two");
  EXPECT_EQ(gunzip(gzip("one") + std::string(512, '\0'), "f"), "one");
}

TEST_F(FileTest, EqualContentsPackEqually) { EXPECT_EQ(gzip("abc"), gzip("abc")); }

TEST_F(FileTest, KeepsLinksAndReplacesTheirTargets) {
  write_file(path("target"), "old");
  fs::create_symlink(path("target"), path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("target")), "new");
}

TEST_F(FileTest, AFileInPiecesIsThereOnceItIsCommitted) {
  write_file(path("file"), "old");
  {
    OutputFile file(path("file"));
    file.append("0000, and ");
    file.append("more");
    file.overwrite(0, "some");
    EXPECT_EQ(read_file(path("file")), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(path("file")), "some, and more");
  OutputFile(path("file")).append("lost");
  EXPECT_EQ(read_file(path("file")), "some, and more");
  EXPECT_EQ(entries(), 1u);  // nothing temporary stays
}

// A pipe cannot go back: it gets the pieces at the end.
TEST_F(FileTest, APipeGetsAFileInPieces) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  OutputFile file(path("pipe"));
  file.append("0000, and more");
  file.overwrite(0, "some");
  file.commit();
  char bytes[32];
  const ssize_t count = ::read(reader, bytes, sizeof bytes);
  ::close(reader);
  EXPECT_EQ(std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0))),
            "some, and more");
}

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST_F(FileTest, AReplacedFileLeavesItsMode) {
  for (const mode_t mode : {0600, 0644, 0664, 0755}) {
    write_file(path("file"), "old");
    ASSERT_EQ(::chmod(path("file").c_str(), mode), 0);
    write_file(path("file"), "new");
    EXPECT_EQ(mode_of(path("file")), mode);
    EXPECT_EQ(read_file(path("file")), "new");
  }
}

TEST_F(FileTest, AReplacedFileLeavesItsOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  write_file(path("file"), "old");
  ASSERT_EQ(::chown(path("file").c_str(), 12345, 23456), 0);
  write_file(path("file"), "new");
  struct stat status = {};
  ASSERT_EQ(::stat(path("file").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345u);
  EXPECT_EQ(status.st_gid, 23456u);
}

// Somebody else foresees the temporary names and puts links to a file of the user's in their place.
TEST_F(FileTest, TemporaryNamesThatAreTakenAreNotWrittenThrough) {
  write_file(path("precious"), "precious");
  // This process has used some of its counter up: the names from here on.
  for (int i = 0; i < 60; ++i) {
    fs::create_symlink(path("precious"), path(fmt::format("file.{}-{}.tmp", ::getpid(), i)));
  }
  write_file(path("file"), "mine");
  EXPECT_EQ(read_file(path("file")), "mine");
  EXPECT_EQ(read_file(path("precious")), "precious");
  EXPECT_EQ(entries(), 62u);
}

TEST_F(FileTest, WritesDevicesInPlace) {
  write_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FileTest, AppendAddsToWhatIsThere) {
  const std::string path = (folder_ / "log").string();
  append_file(path, "one\n");
  append_file(path, "two\n");
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  EXPECT_THROW(append_file((folder_ / "none" / "log").string(), "x"), Error);
}

}  // namespace
}  // namespace heterog
