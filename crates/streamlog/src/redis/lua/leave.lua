-- Standalone readers are gone; the one before them is told that something may wait.
-- KEYS: the session's log. ARGV: tag, replica, stream ('' all of the replica), number
local all, newest = {}, nil
local gone = ARGV[3] .. ':' .. ARGV[2] .. ':' .. ARGV[4]
local h = redis.call('HGET', KEYS[1], 'h')
if not h then return 0 end
for one in string.gmatch(h, '%S+') do
  local replica = string.match(one, '^.-:(.-):')
  newest = one
  if not (one == gone or (ARGV[3] == '' and replica == ARGV[2])) then all[#all + 1] = one end
end
local last = all[#all]
if not last then
  redis.call('HDEL', KEYS[1], 'h')
  return 1
end
redis.call('HSET', KEYS[1], 'h', table.concat(all, ' '))
if last ~= newest then
  local stream, replica, number = string.match(last, '^(.-):(.-):(.*)$')
  redis.call('PUBLISH', 'vestibule:r:' .. replica, 'W ' .. ARGV[1] .. ' ' .. stream .. ' ' .. number .. ' ' .. ARGV[2])
end
return 1
